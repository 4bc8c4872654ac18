"""Reasoning parsers, the same shape as tools: text in any cut -> what is thought, what is said."""
