"""Leases: how the engine learns that the client behind an ensemble is gone.

Triton does not pass the end of a connection on to a running step of an ensemble, but it cancels a
request sent straight to the engine. So a client holds one such request open on the connection of
its streams, and names its id in each of them; when it is cancelled, they all end.
"""

from __future__ import annotations

import logging
from typing import Any

import triton_python_backend_utils as pb_utils
from early_stops import EarlyStops

MOST_LEASES = 1024
LOOKS_AT_ONCE = 64  # each is a round trip to Triton's process

logger = logging.getLogger(__name__)


class Leases:
    """`hold` and `is_over` belong to the shell's thread, `look` to the outbox's."""

    def __init__(self, *, most: int = MOST_LEASES, looks: int = LOOKS_AT_ONCE) -> None:
        self._most = most
        self._looks = looks
        self._senders: dict[str, Any] = {}  # in the order in which they are looked at
        self._over = EarlyStops()

    def hold(self, lease: str, sender: Any) -> str | None:
        """Keeps the request open until its client is gone; why it is refused, if it is."""
        if not lease:
            return "a lease needs a request id"
        if lease in self._senders:
            return "a lease of this request id is held already"
        if len(self._senders) >= self._most:
            return f"{self._most} leases are held already, the most that an engine takes"
        self._senders[lease] = sender
        return None

    def is_over(self, lease: str) -> bool:
        """Whether its client is gone: a request that names it must not start any more."""
        return bool(lease) and self._over.has(lease)

    def look(self) -> set[str]:
        """Asks Triton about those not asked about for longest; returns the leases that are over."""
        over = set()
        for lease in list(self._senders)[: self._looks]:
            sender = self._senders.pop(lease)
            if not sender.is_cancelled():
                self._senders[lease] = sender  # to the end
                continue
            self._over.add(lease)
            over.add(lease)
            _end(sender)
        return over


def _end(sender: Any) -> None:
    try:
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    except Exception:
        logger.exception("a lease could not be ended")
