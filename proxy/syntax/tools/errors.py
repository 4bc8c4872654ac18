"""How a call can fail inside a parser; neither leaves it."""

from __future__ import annotations


class Broken(Exception):
    """Not this family's syntax.

    Args:
        lost: what was taken and not passed on, if the call had started already.
    """

    def __init__(self, lost: str = "") -> None:
        super().__init__(lost)
        self.lost = lost


class CutOff(Exception):
    """The text ended inside a call."""
