"""How deep a JSON text nests, found before it is parsed and in linear time."""

from __future__ import annotations

import re

# The closing quote is optional: a string that never ends must not be looked at again and again.
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
AS_SQUARE = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def exceeds(data: bytes, most: int) -> bool:
    """Whether arrays and objects are nested more than `most` deep.

    False, too, for brackets that do not match: that is the parser's to tell.
    """
    brackets = STRING.sub(b"", data).translate(AS_SQUARE, NO_BRACKETS)
    for _ in range(most):
        outer = brackets.replace(b"[]", b"")  # each time the innermost ones go
        if len(outer) in (0, len(brackets)):
            return False
        brackets = outer
    return True
