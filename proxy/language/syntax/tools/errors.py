"""How a call can fail inside a parser, which handles both errors itself."""

from __future__ import annotations


class Broken(Exception):
    """The text does not follow this family's syntax.

    Args:
        lost: text that was taken but not emitted, if the call had started already.
    """

    def __init__(self, lost: str = "") -> None:
        super().__init__(lost)
        self.lost = lost


class CutOff(Exception):
    """The text ended inside a call."""
