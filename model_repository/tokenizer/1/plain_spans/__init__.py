"""Encodes prompts in which callers' text spells control tokens that must stay plain text."""
