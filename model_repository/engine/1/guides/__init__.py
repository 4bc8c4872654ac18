"""Guided decoding: compiles guides, follows them token by token, and masks forbidden tokens."""
