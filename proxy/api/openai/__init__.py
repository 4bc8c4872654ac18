"""OpenAI's API: bodies, chat completions, completions, models."""
