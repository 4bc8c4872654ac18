"""Logits -> the next token of each row. Each sampling parameter has a file here.

Start with sampler.py: edits.py changes the logits (allowed_tokens, bad_words, min_tokens,
logit_bias, penalties), then truncation.py (temperature, min_p, top_k, top_p) and draws.py choose.
"""
