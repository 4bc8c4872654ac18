"""Remembers the results of guide trials."""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from dataclasses import dataclass

VERDICTS_AT_MOST = 4096
TIMED_OUT = "it took longer"  # how the reason of a trial begins that ran out of time
TIMEOUT_STANDS_S = 60.0  # perhaps the machine was busy

Key = bytes


def key_of(kind: str, text: str) -> Key:
    return hashlib.sha256(f"{kind}\0{text}".encode()).digest()


@dataclass(frozen=True)
class Verdict:
    """`reason`: why the guide cannot be used; None if it can. `until`: by time.monotonic()."""

    reason: str | None
    until: float = math.inf


class Verdicts:
    """Evicts the least recently used verdict when there are too many."""

    def __init__(self) -> None:
        self._verdicts: OrderedDict[Key, Verdict] = OrderedDict()

    def get(self, key: Key) -> Verdict | None:
        verdict = self._verdicts.get(key)
        if verdict is None or verdict.until < time.monotonic():
            return None
        self._verdicts.move_to_end(key)
        return verdict

    def put(self, key: Key, reason: str | None) -> None:
        """A time-out stands for a minute only."""
        is_lasting = not (reason or "").startswith(TIMED_OUT)
        until = math.inf if is_lasting else time.monotonic() + TIMEOUT_STANDS_S
        self._verdicts[key] = Verdict(reason, until)
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > VERDICTS_AT_MOST:
            self._verdicts.popitem(last=False)
