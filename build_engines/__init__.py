"""From weights to what Triton serves: engines, tokenizer tables and the demo model."""
