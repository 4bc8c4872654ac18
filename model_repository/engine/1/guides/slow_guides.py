"""Remembers guides that took too much time, so that the engine refuses them at once next time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from port import Guide

REMEMBER_S = 600.0
REMEMBER_AT_MOST = 1024


class SlowGuides:
    """Stores hashes of guides, for ten minutes, and evicts the oldest when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[int, float] = OrderedDict()

    def add(self, guide: Guide) -> None:
        self._until[hash(guide)] = self._clock() + REMEMBER_S
        if len(self._until) > REMEMBER_AT_MOST:
            self._until.popitem(last=False)

    def __contains__(self, guide: Guide | None) -> bool:
        return self._until.get(hash(guide), 0.0) > self._clock()


def refusal(guide: Guide) -> str:
    """The error message for the client whose guide takes too long to follow."""
    return (
        f"the {guide.kind} guide takes too long to follow token by token, so the engine stopped "
        "the answer. The guide is ambiguous: the same text matches it in many different ways. "
        "Write it without rules that refer to themselves on both sides, and without nested "
        "repetitions."
    )
