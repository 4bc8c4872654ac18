"""Trains the demonstration model: text, tokenizer, network, evaluation and export."""
