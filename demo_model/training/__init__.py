"""The demonstration model: its text, tokenizer, training, evaluation and export."""
