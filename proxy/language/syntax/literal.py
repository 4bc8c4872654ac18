"""A value as models write it -> valid JSON, streamed.

JSON goes through verbatim. Mistakes of small models are corrected: raw control characters and
unknown escapes in strings, trailing commas, Python's quotes, True, None, tuples and numbers, and
bare words, which become strings.
"""

from __future__ import annotations

import json
import math
import re
from enum import Enum, auto

from proxy.language.syntax.reader import PassOn, Reader, Steps

_PLAIN = {
    '"': re.compile(r'[^"\\\x00-\x1f]*'),
    "'": re.compile(r"""[^'"\\\x00-\x1f]*"""),
}
_SCALAR = re.compile(r"[\w+.\-:/@#$%]*")
_BLANK = re.compile(r"[ \t]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_UNDERSCORE = re.compile(r"(?<=[0-9])_(?=[0-9])")
_FIRST_POINT = re.compile(r"(?<![0-9])\.(?=[0-9])")
_LAST_POINT = re.compile(r"(?<=[0-9])\.(?![0-9])")
_STRING_PREFIXES = frozenset("bfru")
_NAMED = {
    **{name: name for name in ("true", "false", "null")},
    **{"True": "true", "False": "false", "None": "null"},
}
_UNICODE_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")
_BYTE_ESCAPE = re.compile(r"\\x[0-9a-fA-F]{2}")
_OPENINGS = {"{": "}", "[": "]", "(": ")"}


class Broken(Exception):
    """The text does not follow this family's syntax.

    Args:
        lost: text that was taken but not emitted, if the call had started already.
    """

    def __init__(self, lost: str = "") -> None:
        super().__init__(lost)
        self.lost = lost


class CutOff(Exception):
    """The text ended inside a call.

    Args:
        closing: what closes the arguments so far, if the text ended behind a whole value, or before
            the first; None if it ended inside a value or a key.
    """

    def __init__(self, closing: str | None = None) -> None:
        super().__init__()
        self.closing = closing


class Place(Enum):
    """Which part of a value comes next."""

    VALUE = auto()
    FIRST_ITEM = auto()
    NEXT_ITEM = auto()
    FIRST_KEY = auto()
    NEXT_KEY = auto()
    COLON = auto()
    SEPARATOR = auto()


_MAY_CLOSE = (
    Place.FIRST_ITEM,
    Place.NEXT_ITEM,
    Place.FIRST_KEY,
    Place.NEXT_KEY,
    Place.SEPARATOR,
)


class Literal:
    """Reads one value, without recursion: each level of depth costs one character of memory.

    A comma is held back until an item follows it, a scalar until it is complete. So the output can
    always be closed to valid JSON, which `read` does before it raises Broken.

    is_strict: bare words and Python's numbers are not values.
    """

    def __init__(self, reader: Reader, write: PassOn, *, is_strict: bool = False) -> None:
        self._reader = reader
        self._write = write
        self._is_strict = is_strict
        self._closings: list[str] = []
        self._held = ""
        self._place = Place.VALUE

    def read(self) -> Steps[None]:
        """
        Raises:
            Broken: the text is not a value; the output is valid JSON all the same.
            CutOff: the text ended before the value did; closing: what is missing of a list or an
                object, behind a whole item.
        """
        yield from self._step()
        while self._closings or self._place is not Place.SEPARATOR:
            yield from self._step()

    def _step(self) -> Steps[None]:
        self._held += yield from self._reader.space()
        char = yield from self._reader.peek()
        if not char:
            raise CutOff(self._ends if self._place is Place.SEPARATOR else None)
        if self._place in _MAY_CLOSE and char == self._closings[-1]:
            self._close()
        elif self._place is Place.COLON:
            self._expect(char, ":", Place.VALUE)
        elif self._place is Place.SEPARATOR:
            self._separate(char)
        elif self._place in (Place.FIRST_KEY, Place.NEXT_KEY):
            yield from self._key(char)
            self._place = Place.COLON
        else:
            yield from self._value(char)

    def _close(self) -> None:
        if self._place in (Place.NEXT_ITEM, Place.NEXT_KEY):
            self._held = ""  # a trailing comma
        char = self._reader.take(1)
        self._closings.pop()
        self._put("]" if char == ")" else char)
        self._place = Place.SEPARATOR

    def _expect(self, char: str, wanted: str, then: Place) -> None:
        if char != wanted:
            raise self._broken()
        self._put(self._reader.take(1))
        self._place = then

    def _separate(self, char: str) -> None:
        if char != ",":
            raise self._broken()
        self._held += self._reader.take(1)
        self._place = Place.NEXT_KEY if self._closings[-1] == "}" else Place.NEXT_ITEM

    def _key(self, char: str) -> Steps[None]:
        if char not in _PLAIN:
            raise self._broken()
        yield from self._string(char)

    def _value(self, char: str) -> Steps[None]:
        if char in _OPENINGS:
            self._closings.append(_OPENINGS[char])
            self._reader.take(1)
            self._put("[" if char == "(" else char)
            self._place = Place.FIRST_KEY if char == "{" else Place.FIRST_ITEM
            return
        if char in _PLAIN:
            yield from self._string(char)
        else:
            yield from self._scalar()
        self._place = Place.SEPARATOR

    def _string(self, quote: str) -> Steps[None]:
        self._put("")
        yield from quoted(self._reader, self._write)

    def _scalar(self) -> Steps[None]:
        token = yield from self._reader.word(_SCALAR)
        text = _NAMED.get(token) or (token if _is_number(token) else "")
        if text:
            self._put(text)
            return
        char = yield from self._reader.peek()
        if not char:
            raise CutOff
        if self._is_strict or not token:
            raise self._broken(token)
        if token in _STRING_PREFIXES and char in _PLAIN:
            yield from self._string(char)
        elif number := _number(token):
            self._put(number)
        else:
            yield from self._words(token)

    def _words(self, first: str) -> Steps[None]:
        """A string without quotes: words with blanks between them."""
        words, gap, word = [], "", first
        while word:
            words += [gap, word]
            gap = yield from self._reader.word(_BLANK)
            word = yield from self._reader.word(_SCALAR)
        if not (yield from self._reader.peek()):
            raise CutOff
        self._put(f'"{escaped("".join(words))}"')
        self._held = gap

    def _put(self, text: str) -> None:
        self._write(self._held + text)
        self._held = ""

    def _broken(self, token: str = "") -> Broken:
        """Closes the output, and makes the error."""
        missing = {Place.VALUE: "null", Place.COLON: ":null"}.get(self._place, "")
        self._write(missing + self._ends)
        return Broken(self._held + token)

    @property
    def _ends(self) -> str:
        return "".join(reversed(self._closings)).replace(")", "]")


def quoted(reader: Reader, write: PassOn) -> Steps[None]:
    """Reads a string in either kind of quotes, from its opening quote on, and writes it as JSON."""
    quote = reader.take(1)
    write('"')
    while True:
        yield from reader.span(_PLAIN[quote], write)
        char = yield from reader.peek()
        if not char:
            raise CutOff
        if char == "\\":
            write((yield from _escape(reader)))
        elif char == quote:
            reader.take(1)
            write('"')
            return
        else:
            write(escaped(reader.take(1)))


def _number(token: str) -> str:
    """`1_000`, `.5` and `108.` as JSON writes them; "" if the token is not a number."""
    plain = _LAST_POINT.sub(".0", _FIRST_POINT.sub("0.", _UNDERSCORE.sub("", token)))
    return plain if _is_number(plain) else ""


def _is_number(token: str) -> bool:
    """Whether it is a number of JSON; one so large that readers get infinity is not."""
    if not _NUMBER.fullmatch(token):
        return False
    return token.lstrip("-").isdigit() or math.isfinite(float(token))


def string(reader: Reader) -> Steps[str]:
    """Reads a string from its opening quote on, and returns its value."""
    parts: list[str] = []
    yield from quoted(reader, parts.append)
    return str(json.loads("".join(parts)))


def escaped(text: str) -> str:
    """The text as it is written between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def literal_in(text: str, *, is_strict: bool = True) -> str | None:
    """The JSON of a text that is exactly one value, else None."""
    reader = Reader()
    reader.feed(text)
    reader.close()
    parts: list[str] = []
    try:
        for _ in Literal(reader, parts.append, is_strict=is_strict).read():
            pass
        for _ in reader.space():
            pass
    except (Broken, CutOff):
        return None
    return None if reader.has_more else "".join(parts).strip()


def _escape(reader: Reader) -> Steps[str]:
    """An escape as JSON writes it; an unknown one becomes an escaped backslash."""
    pair = yield from reader.look(2)
    if len(pair) < 2:
        raise CutOff
    if pair[1] in '"\\/bfnrt':
        return reader.take(2)
    if pair[1] == "'":
        return reader.take(2)[1]
    if pair[1] == "u" and _UNICODE_ESCAPE.fullmatch((yield from _whole(reader, 6))):
        return reader.take(6)
    if pair[1] == "x" and _BYTE_ESCAPE.fullmatch((yield from _whole(reader, 4))):
        return "\\u00" + reader.take(4)[2:]
    reader.take(1)
    return "\\\\"


def _whole(reader: Reader, length: int) -> Steps[str]:
    text = yield from reader.look(length)
    if len(text) < length:
        raise CutOff
    return text
