"""Something that serves an OpenAI endpoint: how it is started, found ready, and stopped."""
