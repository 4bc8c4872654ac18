"""Grammars of texts that are written in an escaped form, as in a JSON string.

Each character of a terminal is replaced by its escaped form, so the grammar that results has the
escaped texts of the original one, and no others. Called by guides and, through `lark`, by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proxy.domain.tools import ToolGrammar
from proxy.language.structured.structural_tags import Format, regex

Ranges = list[tuple[int, int]]  # of code points, both ends included
MAX_GROUPS = 64  # in each other
MAX_COUNT_DIGITS = 6
_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]()|/-]")
_DIGITS, _SPACE = [(48, 57)], [(9, 13), (32, 32)]
_WORD = [*_DIGITS, (65, 90), (95, 95), (97, 122)]
_NAMED = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7, "0": 0}
_TOKEN = re.compile(
    r"""(?P<set>\[(?P<not>\^?)(?P<members>\]?(?:\\.|[^\]\\])*)(?:(?P<closed>\])|\\?\Z))
    |(?P<escape>\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[ux]\{[0-9A-Fa-f]{1,6}\}|.|\Z))
    |(?P<group>\((?:\?(?::|P?<[A-Za-z_]\w*>)?)?)
    |(?P<count>(?P<times>[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??)
    |(?P<edge>[\^$])
    |(?P<bar>\|)
    |(?P<close>\))
    |(?P<char>.)""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(
    r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[ux]\{[0-9A-Fa-f]{1,6}\}|.)|.", re.DOTALL
)


class Inexpressible(ValueError):
    """The pattern is invalid, or not a regular expression in the strict sense."""


@dataclass(frozen=True, slots=True)
class Escapes:
    """`forms`: what is written for a character; for all others, the character itself."""

    forms: Mapping[str, str]

    def text(self, plain: str) -> str:
        return "".join(self.forms.get(char, char) for char in plain)

    def one_of(self, ranges: Ranges) -> str:
        """A regular expression for the escaped form of one of these characters."""
        kept = _joined(ranges)
        if not kept:
            raise Inexpressible("a class has no character")
        endings: dict[str, str] = {}  # the forms' last characters by what stands before them
        for char, form in self.forms.items():
            if any(first <= ord(char) <= last for first, last in kept):
                endings[form[:-1]] = endings.get(form[:-1], "") + form[-1]
        special = [(ord(char), ord(char)) for char in self.forms]
        plain = _without(kept, [*special, _SURROGATES])
        found = [f"[{''.join(map(_range, plain))}]"] if plain else []
        for begin, ends in endings.items():
            found.append(f"{_literal(begin)}[{''.join(map(_in_set, ends))}]")
        return found[0] if len(found) == 1 and plain else f"(?:{'|'.join(found)})"

    def pattern(self, pattern: str, *, is_dot_all: bool = False) -> str:
        """A regular expression for the escaped texts that `pattern` matches in full.

        Raises:
            Inexpressible: it is invalid, or has look-around, back references or word boundaries.
        """
        return "".join(self._parts(pattern, is_dot_all=is_dot_all))

    def _parts(self, pattern: str, *, is_dot_all: bool) -> Iterator[str]:
        depth, before = 0, "bar"
        for found in _TOKEN.finditer(pattern):
            text, at = found[0], f"at character {found.start() + 1}"
            match found.lastgroup:
                case "count":
                    if before not in ("close", "set", "escape", "char"):
                        raise Inexpressible(f"{at}, {text!r} follows nothing that it could repeat")
                    yield _times(found["times"], at)
                case "edge":
                    follows = pattern[found.end() : found.end() + 1]
                    is_at_edge = before == "bar" if text == "^" else follows in ("", "|")
                    if depth or not is_at_edge:
                        raise Inexpressible(f"{at}, {text!r} is not at an edge of the pattern")
                case "group":
                    if text == "(?" or (depth := depth + 1) > MAX_GROUPS:
                        raise Inexpressible(f"{at}, a group of this kind, or depth, is unsupported")
                    yield "(?:"
                case "close":
                    if (depth := depth - 1) < 0:
                        raise Inexpressible(f"{at}, ')' closes no group")
                    yield ")"
                case "bar":
                    yield "|"
                case "set":
                    if found["closed"] is None:
                        raise Inexpressible(f"{at}, a class is not closed")
                    ranges = _members(found["members"], at)
                    yield self.one_of(_without([(0, _LAST)], ranges) if found["not"] else ranges)
                case "escape":
                    yield self.one_of(_escaped(text, at))
                case _ if text == ".":
                    yield self.one_of(_without([(0, _LAST)], [] if is_dot_all else [(10, 10)]))
                case _:
                    yield self.one_of([(ord(text), ord(text))])
            before = str(found.lastgroup)
        if depth:
            raise Inexpressible("a group is not closed")


def _times(text: str, at: str) -> str:
    digits = text.strip("{}").split(",")
    if text in "*+?" or max(map(len, digits)) <= MAX_COUNT_DIGITS:
        return text
    raise Inexpressible(f"{at}, {text[:20]!r} has more than {MAX_COUNT_DIGITS} digits")


def _members(text: str, at: str) -> Ranges:
    if "[:" in text or "&&" in text:
        raise Inexpressible(f"{at}, a class has '[:' or '&&', which is not supported")
    found: Ranges = []
    items = _MEMBER.findall(text)
    place = 0
    while place < len(items):
        ranges = _escaped(items[place], at, is_member=True)
        if items[place + 1 : place + 2] == ["-"] and place + 2 < len(items):
            ends = [*ranges, *_escaped(items[place + 2], at, is_member=True)]
            (first, same), (last, end) = ends[0], ends[-1]
            if len(ends) != 2 or first != same or last != end or first > last:
                raise Inexpressible(f"{at}, {''.join(items[place : place + 3])!r} is not a range")
            ranges = [(first, last)]
            place += 2
        found += ranges
        place += 1
    return found


def _escaped(text: str, at: str, *, is_member: bool = False) -> Ranges:
    """The characters that a character, or an escape, stands for."""
    if len(text) == 1 and text != "\\":
        return [(ord(text), ord(text))]
    name = text[1:2]
    if len(text) > 2:
        code = int(text[2:].strip("{}"), 16)
    elif name and not (name.isascii() and name.isalnum()):
        code = ord(name)
    elif name in "dDwWsS" and name:
        ranges = {"d": _DIGITS, "w": _WORD, "s": _SPACE}[name.lower()]
        return ranges if name.islower() else _without([(0, _LAST)], ranges)
    elif name == "b" and is_member:
        code = 8
    elif name in _NAMED:
        code = _NAMED[name]
    else:
        raise Inexpressible(f"{at}, {text!r} is not supported")
    if code > _LAST or _SURROGATES[0] <= code <= _SURROGATES[1]:
        raise Inexpressible(f"{at}, {text!r} is not a character")
    return [(code, code)]


def _joined(ranges: Ranges) -> Ranges:
    """The same characters, in order, and each once."""
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def _without(ranges: Ranges, removed: Ranges) -> Ranges:
    found: Ranges = []
    gaps = _joined(removed)
    for first, last in _joined(ranges):
        for begin, end in gaps:
            if begin > last:
                break
            if end >= first:
                if begin > first:
                    found.append((first, begin - 1))
                first = end + 1
        if first <= last:
            found.append((first, last))
    return found


def _range(ends: tuple[int, int]) -> str:
    first, last = (_in_set(chr(end)) for end in ends)
    return first if first == last else f"{first}-{last}"


def _in_set(char: str) -> str:
    return f"\\x{ord(char):02x}" if char < " " else f"\\{char}" if char in "\\]^-[" else char


def _literal(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


IN_JSON = Escapes(
    {char: json.dumps(char)[1:-1] for char in ('"', "\\", *map(chr, range(ord(" "))))}
)
# Between tags. The text then has no tag, so that its end is certain.
IN_MARKUP = Escapes({"<": "&lt;", "&": "&amp;"})


def grammar_format(grammar: ToolGrammar, escapes: Escapes) -> Format:
    """The format of the escaped texts that conform to the grammar.

    Raises:
        ValueError: it is invalid, or means what no grammar of ours expresses.
    """
    if grammar.syntax == "regex":
        return regex(escapes.pattern(grammar.definition))
    from proxy.language.structured import lark  # only the sandbox needs its library

    return {"type": "grammar", "grammar": lark.to_ebnf(grammar.definition, escapes)}
