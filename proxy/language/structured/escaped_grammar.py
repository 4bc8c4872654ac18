"""Grammars of texts that are written in an escaped form, as in a JSON string.

Each character of a terminal is replaced by its escaped form, so the grammar that results has the
escaped texts of the original one, and no others. Called by guides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

Ranges = list[tuple[int, int]]  # of code points, both ends included
MAX_GROUPS = 64  # in each other
_ALL, _SURROGATES = (0, 0x10FFFF), (0xD800, 0xDFFF)
# With as many bytes in UTF-8. In a grammar, xgrammar 0.2.8 lets overlong bytes stand for a class of
# characters that differ in this.
_LENGTHS = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF))
_SETS: dict[str, Ranges] = {
    "d": [(48, 57)],
    "w": [(48, 57), (65, 90), (95, 95), (97, 122)],
    "s": [(9, 13), (32, 32)],
}
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
_ESCAPE = r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[ux]\{[0-9A-Fa-f]{1,6}\}|[\s\S]|\Z)"
_TOKEN = re.compile(
    r"(?P<set>\[(?P<not>\^?)(?P<members>\]?(?:\\[\s\S]|[^\]\\])*)(?P<end>\]|\\?\Z))"
    rf"|(?P<escape>{_ESCAPE})"
    r"|(?P<group>\((?:\?(?::|P?<[A-Za-z_]\w*>)?)?)"
    r"|(?P<count>(?P<times>[*+?]|\{[0-9]{1,6}(?:,[0-9]{0,6})?\})\??)"
    r"|(?P<edge>[\^$])|(?P<bar>\|)|(?P<close>\))|(?P<char>[\s\S])"
)
_MEMBER = re.compile(rf"({_ESCAPE}|[\s\S])(?:-({_ESCAPE}|[\s\S]))?")
_REPEATABLE = ("close", "set", "escape", "char")


class Inexpressible(ValueError):
    """The pattern is invalid, or not a regular expression in the strict sense."""


@dataclass(frozen=True, slots=True)
class Escapes:
    """`forms`: what is written for the characters of `ranges`; all others stand for themselves."""

    ranges: Ranges
    forms: Mapping[str, str]

    def text(self, plain: str) -> str:
        return "".join(self.forms.get(char, char) for char in plain)

    def one_of(self, ranges: Ranges) -> str:
        """A regular expression for the escaped form of one of these characters."""
        plain = _without(ranges, [*self.ranges, _SURROGATES])
        parts = ([*_within(plain, first, last)] for first, last in _LENGTHS)
        found = [f"[{''.join(map(_range, part))}]" for part in parts if part]
        endings: dict[str, str] = {}  # the forms' last characters by what stands before them
        for char, form in self.forms.items():
            if any(first <= ord(char) <= last for first, last in ranges):
                endings[form[:-1]] = endings.get(form[:-1], "") + _in_set(form[-1])
        found += [
            f"{begin}[{ends}]".replace("\\", r"\\", begin.count("\\"))
            for begin, ends in endings.items()
        ]
        if not found:
            raise Inexpressible("a class has no character")
        return f"(?:{'|'.join(found)})" if endings or len(found) > 1 else found[0]

    def pattern(self, pattern: str, *, is_dot_all: bool = False) -> str:
        """A regular expression for the escaped texts that `pattern` matches in full.

        Raises:
            Inexpressible: it is invalid, or has look-around, back references or word boundaries.
        """
        return "".join(self._parts(pattern, is_dot_all=is_dot_all))

    def _parts(self, pattern: str, *, is_dot_all: bool) -> Iterator[str]:
        depth, before = 0, "bar"
        for found in _TOKEN.finditer(pattern):
            text, kind = found[0], str(found.lastgroup)
            problem = None
            match kind:
                case "group":
                    depth += 1
                    if text == "(?" or depth > MAX_GROUPS:
                        problem = "is a group of an unsupported kind, or too deep"
                    yield "(?:"
                case "close":
                    depth -= 1
                    problem = "closes no group" if depth < 0 else None
                    yield text
                case "bar":
                    yield text
                case "count":
                    problem = None if before in _REPEATABLE else "repeats nothing"
                    yield found["times"]
                case "edge":
                    follows = pattern[found.end() : found.end() + 1]
                    is_at_edge = before == "bar" if text == "^" else follows in ("", "|")
                    problem = None if is_at_edge and not depth else "is not at the pattern's edge"
                case "set" if found["end"] == "]":
                    ranges = [
                        one for each in _MEMBER.finditer(found["members"]) for one in _member(each)
                    ]
                    yield self.one_of(_without([_ALL], ranges) if found["not"] else ranges)
                case "escape":
                    yield self.one_of(_characters(text))
                case _ if text == ".":
                    yield self.one_of([_ALL] if is_dot_all else _without([_ALL], [(10, 10)]))
                case _ if text[0] in "[{":
                    problem = "is not closed, or stands for itself without a backslash"
                case _:
                    yield self.one_of(_characters(text))
            if problem is not None:
                raise Inexpressible(f"at character {found.start() + 1}, {text[:20]!r} {problem}")
            before = kind
        if depth:
            raise Inexpressible("a group is not closed")


def _member(found: re.Match[str]) -> Ranges:
    """A member of a class, which may be a range."""
    first, last = _characters(found[1], is_member=True), found[2]
    if last is None:
        return first
    ends = [*first, *_characters(last, is_member=True)]
    if len(ends) != 2 or ends[0][0] != ends[0][1] or ends[1][0] != ends[1][1] or ends[0] > ends[1]:
        raise Inexpressible(f"{found[0]!r} is not a range")
    return [(ends[0][0], ends[1][1])]


def _characters(text: str, *, is_member: bool = False) -> Ranges:
    """What a character, or an escape, stands for."""
    name = text[1:2]
    if text[0] != "\\":
        code = ord(text)
    elif len(text) > 2:
        code = int(text[2:].strip("{}"), 16)
    elif name.lower() in _SETS:
        ranges = _SETS[name.lower()]
        return ranges if name.islower() else _without([_ALL], ranges)
    elif name == "b" and is_member:
        code = 8
    elif name in _CONTROLS or (name and not (name.isascii() and name.isalnum())):
        code = _CONTROLS.get(name, ord(name))
    else:
        raise Inexpressible(f"{text!r} is not supported")
    if code > _ALL[1] or _SURROGATES[0] <= code <= _SURROGATES[1]:
        raise Inexpressible(f"{text!r} is not a character")
    return [(code, code)]


def _without(ranges: Ranges, removed: Ranges) -> Ranges:
    for begin, end in removed:
        ranges = [
            (first, last)
            for start, stop in ranges
            for first, last in ((start, min(stop, begin - 1)), (max(start, end + 1), stop))
            if first <= last
        ]
    return ranges


def _within(ranges: Ranges, begin: int, end: int) -> Iterator[tuple[int, int]]:
    for first, last in ranges:
        if first <= end and last >= begin:
            yield max(first, begin), min(last, end)


def _range(ends: tuple[int, int]) -> str:
    first, last = (_in_set(chr(end)) for end in ends)
    return first if first == last else f"{first}-{last}"


def _in_set(char: str) -> str:
    return f"\\x{ord(char):02x}" if char < " " else f"\\{char}" if char in "\\]^-[" else char


def _escapes(ranges: Ranges, write: Callable[[str], str]) -> Escapes:
    characters = [chr(code) for first, last in ranges for code in range(first, last + 1)]
    return Escapes(ranges, {char: write(char) for char in characters})


IN_JSON = _escapes([(0, 31), (34, 34), (92, 92)], lambda char: json.dumps(char)[1:-1])
# Between tags. The text then has no tag, so that its end is certain.
IN_MARKUP = _escapes([(38, 38), (60, 60)], escape)
