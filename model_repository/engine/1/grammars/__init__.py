"""Guides -> xgrammar's compiled grammars. Imports nothing of the engine.

The tokenizer model links to this folder, so it accepts exactly the guides that the engine compiles.
"""
