"""What the choice of an endpoint knows of each one. Its endpoint object keeps it up to date."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.domain.endpoints import EngineLoad
from proxy.pools.outstanding import Outstanding
from proxy.pools.slow_start import WINDOW_S, slow_start_share
from proxy.pools.speed import Speed

FULL = 1e12  # tokens a row: more than any work that is really outstanding
KV_PRESSURE_FROM = 0.9
LEAST_KV_HEADROOM = 0.1
SLOW_FOR_S = 10.0  # after the last measurement


class Candidate:
    """One endpoint, for one Triton model or all.

    bit: of `PrefixIndex.add_endpoint`; 0 without an index. rows: requests that the engine runs at
    once, 1 if unknown. slowness: how many times slower its answers are than the other endpoints'.
    `capacity`, `extra_tokens` and `penalty` are what `Chooser` reads.
    """

    __slots__ = (
        *("_headroom", "_share", "_since_s", "_slow_until_s", "_window_s"),
        *("address", "bit", "capacity", "extra_streams", "extra_tokens"),
        *("outstanding", "penalty", "rows", "slowness", "speed"),
    )

    def __init__(
        self, address: str, outstanding: Outstanding, *, bit: int = 0, rows: int = 1
    ) -> None:
        self.address = address
        self.outstanding = outstanding
        self.bit = bit
        self.rows = max(1, rows)
        self.extra_streams = 0
        self.extra_tokens = 0.0
        self.penalty = 0.0
        self._share = self._headroom = 1.0
        self._since_s, self._window_s, self._slow_until_s = 0.0, 0.0, 0.0
        self.speed, self.slowness = Speed(), 1.0
        self.capacity = float(self.rows)

    @property
    def has_free_row(self) -> bool:
        return self.outstanding.streams + self.extra_streams < self.rows

    @property
    def is_warming_up(self) -> bool:
        return self._share < 1.0 or self.slowness > 1.0

    def set_rows(self, rows: int) -> None:
        self.rows = max(1, rows)
        self._weigh()

    def set_load(self, load: EngineLoad, *, tokens_a_stream: float) -> None:
        """What its engine reports, see engine_load.py. A stale load makes the endpoint full.

        An unknown one changes nothing. tokens_a_stream: what one stream of another process
        probably is; the requests that this process did not send count so much. From 90 % of the KV
        cache on, the endpoint gets less and less.
        """
        self.penalty = FULL if load.is_stale else 0.0
        if load.is_stale:
            return
        theirs = (load.waiting or 0) + (load.running or 0) - self.outstanding.streams
        self.extra_streams = max(0, theirs)
        self.extra_tokens = self.extra_streams * tokens_a_stream
        over = max(0.0, (load.kv_in_use or 0.0) - KV_PRESSURE_FROM) / (1.0 - KV_PRESSURE_FROM)
        self._headroom = 1.0 - (1.0 - LEAST_KV_HEADROOM) * min(1.0, over)
        self._weigh()

    def start_slowly(self, now_s: float, window_s: float = WINDOW_S) -> None:
        """It is new, or its breaker has closed. `Chooser` then calls `warm_up` until it is over."""
        self._since_s, self._window_s, self.slowness = now_s, window_s, 1.0
        self.speed.forget()
        self.warm_up(now_s)

    def slow_down(self, slowness: float, now_s: float) -> None:
        """Measured now; 1: it is as fast as the others. `Chooser` then calls `warm_up`."""
        self.slowness, self._slow_until_s = slowness, now_s + SLOW_FOR_S
        self._weigh()

    def warm_up(self, now_s: float) -> None:
        """Also tries an endpoint again that was slow, and that nothing was sent to since."""
        if self.slowness > 1.0 and now_s >= self._slow_until_s:
            self.start_slowly(self._slow_until_s, self._window_s)
        self._share = slow_start_share(now_s - self._since_s, self._window_s)
        self._weigh()

    def _weigh(self) -> None:
        self.capacity = self.rows * self._share * self._headroom / self.slowness


@dataclass(frozen=True, slots=True)
class Candidates:
    """Endpoints that may be chosen now. Make it when they change, not for each request."""

    members: tuple[Candidate, ...]
    bits: int

    @classmethod
    def of(cls, members: Iterable[Candidate]) -> Candidates:
        listed = tuple(members)
        bits = 0
        for member in listed:
            bits |= member.bit
        return cls(listed, bits)

    def without(self, addresses: Collection[str]) -> Candidates:
        """Without the endpoints where a request has failed already."""
        if not addresses:
            return self
        return self.of(member for member in self.members if member.address not in addresses)
