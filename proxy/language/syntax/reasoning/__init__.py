"""Families of reasoning syntax: their parsers, and the marks that guides need."""
