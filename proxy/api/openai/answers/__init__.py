"""Output events -> OpenAI response bodies and chunks."""
