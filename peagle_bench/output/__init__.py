"""What people and programs read: terminal, markdown, charts, exports. Nothing is computed here."""
