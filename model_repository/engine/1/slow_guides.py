"""Guides that took more time than they may: sent again, they are refused at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from port import Guide

REMEMBER_S = 600.0
REMEMBER_AT_MOST = 1024
PARAM = "guided_decoding_guide"


class SlowGuides:
    """Guides by their hash, for ten minutes and bounded in number."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[int, float] = OrderedDict()

    def add(self, guide: Guide) -> None:
        self._until[hash(guide)] = self._clock() + REMEMBER_S
        if len(self._until) > REMEMBER_AT_MOST:
            self._until.popitem(last=False)

    def __contains__(self, guide: Guide | None) -> bool:
        return self._until.get(hash(guide), 0.0) > self._clock()


def message(guide: Guide) -> str:
    return (
        f"the {guide.kind} guide takes too long to follow token by token, so that the answer was "
        "stopped. It is ambiguous: one text can be read in many ways. Write it without rules that "
        "repeat themselves on both sides, and without nested repetitions."
    )
