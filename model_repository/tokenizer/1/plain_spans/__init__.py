"""`plain_spans`: prompts in which callers' text spells control tokens that must stay plain text.

The tokenizers library can ignore special tokens only in a whole text. So encoder.py makes every
control token in a span special, and gives those outside of spans other names (aliases.py).
"""
