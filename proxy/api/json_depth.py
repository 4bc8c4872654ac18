"""How deep a JSON text nests, found before it is parsed and in linear time."""

from __future__ import annotations

from itertools import accumulate

AS_SQUARE = bytes.maketrans(b"{}", b"[]")
NO_MARKS = bytes(set(range(256)) - set(b'"[]{}'))
STEPS = {ord("["): 1, ord("]"): -1}


def exceeds(data: bytes, most: int) -> bool:
    """Whether more than `most` arrays and objects are open at once.

    Of what is no JSON it says anything: the parser tells what is wrong with that.
    """
    return max(accumulate(map(STEPS.__getitem__, _brackets(data))), default=0) > most


def _brackets(data: bytes) -> bytes:
    """Those outside of strings, all of them square.

    They have an even number of quotes before them, which two less do not change. Whole passes of
    C, as a match for each of a million strings would take a second and half a gigabyte.
    """
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")
    marks = unescaped.translate(AS_SQUARE, NO_MARKS).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])
