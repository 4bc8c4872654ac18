"""Models on vLLM: their options, what vLLM is started with, and their build."""
