"""Leases: how the engine learns that the client of an ensemble has disconnected.

Triton does not report the end of a connection to a running step of an ensemble, but it cancels a
request that was sent straight to the engine. So a client keeps one such request open, the lease,
on the connection of its streams, and names its id in each of them. When Triton cancels the lease,
the engine ends all of its streams.
"""

from __future__ import annotations

import logging
from typing import Any

import triton_python_backend_utils as pb_utils

from recent_ids import RecentIds

MOST_LEASES = 1024
CHECKS_AT_ONCE = 64  # each is a round trip to Triton's process

logger = logging.getLogger(__name__)


class Leases:
    """The shell's thread calls `hold` and `is_over`, the response writer's calls `check`."""

    def __init__(self, *, most: int = MOST_LEASES, checks: int = CHECKS_AT_ONCE) -> None:
        self._most = most
        self._checks = checks
        self._senders: dict[str, Any] = {}  # in the order of the next checks
        self._over = RecentIds()

    def hold(self, lease: str, sender: Any) -> str | None:
        """Keeps the request open until its client disconnects; returns why not if it cannot."""
        if not lease:
            return "a lease needs a request id"
        if lease in self._senders:
            return "another lease with this request id is open"
        if len(self._senders) >= self._most:
            return f"{self._most} leases are open, which is the maximum of an engine"
        self._senders[lease] = sender
        return None

    def is_over(self, lease: str) -> bool:
        """Whether its client has disconnected, so that a request under it must not start."""
        return bool(lease) and self._over.has(lease)

    def check(self) -> set[str]:
        """Asks Triton about the leases checked longest ago; returns those that are over."""
        over = set()
        for lease in list(self._senders)[: self._checks]:
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
        logger.exception("cannot end the request of a lease")
