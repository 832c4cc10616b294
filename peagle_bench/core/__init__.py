"""The nouns: frozen models without I/O."""
