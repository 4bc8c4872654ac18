"""Finds out that a peer is gone which has not said so: a PING where nothing has come for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

# A gRPC server closes a connection on the third PING, counted from its last DATA or HEADERS, that
# comes within five minutes of the one before (`grpc.http2.max_ping_strikes`,
# `grpc.http2.min_ping_interval_without_data_ms`).
MAX_QUICK_PINGS = 2
SLOW_PING_S = 310.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """`quiet_s` of silence with calls running bring a PING, `answer_s` more the end."""

    quiet_s: float = 30.0
    answer_s: float = 10.0


class Keepalive:
    """Runs from `start` to `stop`. Any bytes of the peer are an answer."""

    def __init__(
        self,
        patience: Patience,
        *,
        has_calls: Callable[[], bool],
        ping: Callable[[], None],
        give_up: Callable[[str], None],
    ) -> None:
        self._patience = patience
        self._has_calls = has_calls
        self._ping = ping
        self._give_up = give_up
        self._has_heard = True
        self._is_asking = False
        self._pings = 0  # since an event
        self._pinged_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._wait(self._patience.quiet_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def heard(self, *, has_events: bool) -> None:
        self._has_heard = True
        if has_events:
            self._pings = 0

    def _wait(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        has_heard, self._has_heard = self._has_heard, False
        if self._is_asking and not has_heard:
            self._give_up(f"the peer answered no PING for {self._patience.answer_s:g} seconds")
            return
        self._is_asking = not has_heard and self._has_calls() and self._may_ping()
        if self._is_asking:
            self._pings += 1
            self._pinged_at = self._loop.time()
            self._ping()
        self._wait(self._patience.answer_s if self._is_asking else self._patience.quiet_s)

    def _may_ping(self) -> bool:
        return self._pings < MAX_QUICK_PINGS or self._loop.time() - self._pinged_at >= SLOW_PING_S
