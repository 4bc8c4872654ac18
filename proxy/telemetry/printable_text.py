"""Texts of callers in a line of the log: one line stays one line, and no terminal obeys them."""

from __future__ import annotations


def printable(text: str, keeps: str = "") -> str:
    """The text with its control characters, line ends and lone surrogates as escapes.

    keeps: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keeps else ascii(each)[1:-1] for each in text
    )
