"""OpenAI request bodies -> GenerationRequest."""
