"""Lark's grammar language, cut into tokens and statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

AT_MOST = 20_000  # tokens
_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*)
  | (?P<string>"(?:\\.|[^"\\\n])*"i?)
  | (?P<regex>/(?![/*])(?:\\.|[^/\\\n])+/[a-z]*)
  | (?P<range>\.\.)
  | (?P<arrow>->)
  | (?P<keyword>%\w+)
  | (?P<name>[?!]*_?[A-Za-z]\w*)
  | (?P<number>-?\d+)
  | (?P<newline>\n)
  | (?P<mark>[|:()\[\]{}+*?~.,])
  | (?P<space>[ \t\r\f]+)
    """,
    re.VERBOSE,
)
_NO_MEANING = ("comment", "space")


class Untranslatable(ValueError):
    """EBNF has no words for it; the message says for what."""


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is a group of the pattern above."""

    kind: str
    text: str


def statements(text: str) -> Iterator[list[Token]]:
    """The tokens of each definition or `%` command; a line that begins with `|` goes on with it.

    Raises:
        Untranslatable: there is something that no token begins with, or too much of it.
    """
    statement: list[Token] = []
    for token, is_first in _in_lines(text):
        if is_first and token.text != "|" and statement:
            yield statement
            statement = []
        statement.append(token)
    if statement:
        yield statement


def _in_lines(text: str) -> Iterator[tuple[Token, bool]]:
    """Each token, and whether it is the first of its line."""
    at, count, is_first = 0, 0, True
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise Untranslatable(f"{text[at : at + 20]!r} is no part of Lark's syntax")
        at, kind = match.end(), match.lastgroup
        if kind == "newline":
            is_first = True
        elif kind not in _NO_MEANING:
            count += 1
            if count > AT_MOST:
                raise Untranslatable(f"it has more than {AT_MOST} tokens")
            yield Token(kind, match.group()), is_first
            is_first = False
