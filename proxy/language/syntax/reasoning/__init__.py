"""Families of reasoning syntax, one a file: the parser, and the marks that guides need."""
