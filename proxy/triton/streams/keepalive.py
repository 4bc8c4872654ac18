"""Detects a server that vanished without closing the connection, by PINGs after silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

# A gRPC server closes a connection on the third PING since its last DATA or HEADERS that arrives
# within five minutes of the previous one (`grpc.http2.max_ping_strikes`,
# `grpc.http2.min_ping_interval_without_data_ms`).
MAX_QUICK_PINGS = 2
SLOW_PING_S = 310.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepaliveTimes:
    """After `quiet_s` of silence with running calls a PING is sent; after `answer_s` more without
    an answer the connection is given up.
    """

    quiet_s: float = 30.0
    answer_s: float = 10.0


class Keepalive:
    """Runs from `start` to `stop`. Any bytes from the server count as an answer."""

    def __init__(
        self,
        times: KeepaliveTimes,
        *,
        has_calls: Callable[[], bool],
        ping: Callable[[], None],
        give_up: Callable[[str], None],
    ) -> None:
        self._times = times
        self._has_calls = has_calls
        self._ping = ping
        self._give_up = give_up
        self._has_data = True
        self._is_waiting = False
        self._pings = 0  # since the last event
        self._pinged_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._wait(self._times.quiet_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_arrived(self, *, has_events: bool) -> None:
        self._has_data = True
        if has_events:
            self._pings = 0

    def _wait(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        has_data, self._has_data = self._has_data, False
        if self._is_waiting and not has_data:
            self._give_up(f"the server did not answer a PING for {self._times.answer_s:g} seconds")
            return
        self._is_waiting = not has_data and self._has_calls() and self._may_ping()
        if self._is_waiting:
            self._pings += 1
            self._pinged_at = self._loop.time()
            self._ping()
        self._wait(self._times.answer_s if self._is_waiting else self._times.quiet_s)

    def _may_ping(self) -> bool:
        return self._pings < MAX_QUICK_PINGS or self._loop.time() - self._pinged_at >= SLOW_PING_S
