"""Where prompts come from: one module per format, each with `load(suite) -> list of Prompt`."""
