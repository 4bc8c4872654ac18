"""Markdown's code in a stream of text: fences and backticks, in which marks are text."""

from __future__ import annotations

import re

from proxy.language.syntax.reader import Reader, Steps

_PARTS = re.compile(r"\n|`+|~+|[^\n`~]+")
_COUNTS = re.compile(r"[\n`~]")
_BEFORE_FENCE = re.compile(r"[\s>*+\-.)0-9]*")  # indentation, quotes, and items of lists
_MOST_IN_FENCE, _MOST_IN_SPAN = 8_192, 1_024


class CodeSpans:
    """Whether text that is read piece by piece is inside code.

    A run of backticks opens a span that ends at an equal run, and with its line; one of three or
    more that its line does not close opens a fence, as three tildes do. A fence ends with a line
    that has nothing but a run as long. A backtick behind a letter is an apostrophe.

    is_cut: the model did not end the answer itself; set when the text has ended.
    """

    __slots__ = (
        "_before",
        "_char",
        "_closes",
        "_count",
        "_fence",
        "_is_inner",
        "_is_start",
        "_span",
        "is_cut",
    )

    def __init__(self) -> None:
        self._char, self._count = "", 0  # the run that the text ends with
        self._before = ""  # the character before it
        self._fence = ("", 0)
        self._span = 0
        self._is_start = True  # nothing on this line could not stand before a fence
        self._closes = False  # the line is the end of the fence, if nothing follows
        self._is_inner = False  # neither counts, nor does a run go on
        self.is_cut = False

    def read(self, text: str) -> None:
        if self._is_inner and not _COUNTS.search(text):  # nearly all pieces
            self._before = text[-1:] or self._before
            return
        for part in _PARTS.findall(text):
            if part[0] == self._char:
                self._count += len(part)
                continue
            self._end_run()
            if part[0] in "`~":
                self._char, self._count = part[0], len(part)
            elif part == "\n":
                self._end_line()
            else:
                self._before = part[-1]
                self._is_start = self._is_start and bool(_BEFORE_FENCE.fullmatch(part))
                self._closes = self._closes and part.isspace()
        self._is_inner = not (self._char or self._is_start or self._closes)

    def _end_run(self) -> None:
        char, count = self._char, self._count
        if not char:
            return
        self._char, self._count = "", 0
        if self._fence[0]:
            self._closes = self._is_start and char == self._fence[0] and count >= self._fence[1]
        elif char == "~":
            if count > 2 and self._is_start:
                self._fence = (char, count)
        elif self._span:
            self._span = 0 if self._span == count else self._span
        elif count > 2 or not (self._before.isascii() and self._before.isalnum()):
            self._span = count
        self._is_start = False
        self._before = char

    def _end_line(self) -> None:
        if self._closes:
            self._fence = ("", 0)
        elif self._span > 2:
            self._fence = ("`", self._span)
        self._span, self._is_start, self._closes, self._before = 0, True, False, ""

    @property
    def is_behind_backtick(self) -> bool:
        return self._char == "`"

    @property
    def is_fenced(self) -> bool:
        """Whether the next character, which is no backtick, is inside a fence."""
        self._end_run()
        if self._closes:
            self._fence, self._closes = ("", 0), False
        return bool(self._fence[0])

    def quotation(self, reader: Reader) -> Steps[str]:
        """Takes the code from here on, up to its end or as far as that is looked for; "" if the
        next character, which is no backtick, is outside code. A span that does not end before an
        empty line was none; neither was a fence that the model left open when it ended its answer.
        """
        is_fenced = self.is_fenced or self._span > 2
        char, count = self._fence if self._fence[0] else ("`", self._span)
        if not count:
            return ""
        most = _MOST_IN_FENCE if is_fenced else _MOST_IN_SPAN
        if self._fence[0]:
            end = f"(\n[ \t>]*{char}{{{count},}}[ \t]*(?=\n))"
        elif is_fenced:
            end = f"(`{{{count},}}(?=[^`]))"
        else:
            end = f"(?<!`)(`{{{count}}}(?=[^`]))|\n[ \t]*\n"
        found = yield from reader.find(re.compile(end), most)
        if found and found[1]:
            return reader.take(found.end(1))
        if is_fenced and (self.is_cut or reader.pending >= most):
            return reader.take(min(most, reader.pending))
        self._fence, self._span = ("", 0), 0
        return ""
