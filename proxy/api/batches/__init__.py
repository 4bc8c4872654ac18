"""OpenAI's files and batches."""
