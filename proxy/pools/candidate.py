"""What the choice of an endpoint knows of each one. Its endpoint object keeps it up to date."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf
from statistics import median_low
from typing import Generic, TypeVar

from proxy.domain.endpoints import EngineLoad

OUTPUT_TOKENS = 256.0  # expected of a model that has not finished anything yet
WINDOW_S = 10.0
FIRST_SHARE = 0.1
NOTICED = 3.0  # times the median of the others; load and chance explain less
OUTLIER = 5.0
SLOW_STREAMS = 5  # one after another make the endpoint an outlier
WEIGHT_OF_NEWEST = 0.3
FULL = 1e12  # tokens a row: more than any work that is really outstanding
KV_PRESSURE_FROM = 0.9
LEAST_KV_HEADROOM = 0.1
SLOW_FOR_S = 10.0  # after the last measurement


def slow_start_share(age_s: float) -> float:
    """Its share of what it will have later, from FIRST_SHARE to 1; 1 after the window.

    age_s: time since the endpoint became ready or its breaker closed. The rest of the way falls
    with the fourth power of the remaining time: 40 % after a tenth of the window, 94 % after half
    of it. A straight line would still be at 55 % then. The first requests are few, so that caches
    and connections warm up, and most of the share is there within 5 s, as a scaled deployment needs
    it. The share bounds the endpoint's outstanding work, not its
    rate, so a herd of requests at the beginning cannot exceed it.
    """
    if age_s >= WINDOW_S:
        return 1.0
    remaining = 1.0 - max(0.0, age_s) / WINDOW_S
    return FIRST_SHARE + (1.0 - FIRST_SHARE) * (1.0 - remaining**4)


class Measure:
    """One kind of time: its running mean, and how many times more it is than the others' median.

    noise_s: differences that mean nothing. outlier_s: an outlier is slower by more than this.
    """

    __slots__ = ("_noise_s", "_outlier_s", "mean_s", "slowness")

    def __init__(self, *, noise_s: float, outlier_s: float) -> None:
        self._noise_s, self._outlier_s = noise_s, outlier_s
        self.mean_s: float | None = None
        self.slowness = 1.0

    def add(self, newest_s: float, others: Iterable[Measure]) -> bool:
        """Returns whether it is an outlier among the others' means."""
        mean_s = newest_s
        if self.mean_s is not None:
            mean_s = self.mean_s + WEIGHT_OF_NEWEST * (newest_s - self.mean_s)
        self.mean_s, self.slowness = mean_s, 1.0
        known = [one.mean_s for one in others if one.mean_s is not None]
        if not known:
            return False
        usual_s = median_low(known)
        base_s = usual_s + self._noise_s
        self.slowness = (mean_s + self._noise_s) / base_s
        is_far = newest_s + self._noise_s >= OUTLIER * base_s
        return is_far and newest_s - usual_s > self._outlier_s


class Speed:
    """How fast one endpoint answers, for one build. slow_streams: outliers, one after another."""

    __slots__ = ("each_token", "first_token", "slow_streams")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.first_token = Measure(noise_s=0.1, outlier_s=1.0)
        self.each_token = Measure(noise_s=0.002, outlier_s=0.1)
        self.slow_streams = 0


class Candidate:
    """One endpoint, for one Triton model or all.

    streams, tokens: the work that this process has sent there and that has not ended. bit: of
    `PrefixIndex.add_endpoint`; 0 without an index. rows: requests that the engine runs at
    once, 1 if unknown. slowness: how many times slower its answers are than the other endpoints'.
    `capacity`, `extra_tokens` and `penalty` are what `Chooser` reads.
    """

    __slots__ = (
        "_headroom",
        "_share",
        "_since_s",
        "_slow_until_s",
        "address",
        "bit",
        "capacity",
        "extra_streams",
        "extra_tokens",
        "penalty",
        "rows",
        "slowness",
        "speed",
        "streams",
        "tokens",
    )

    def __init__(self, address: str, *, bit: int = 0, rows: int = 1) -> None:
        self.address = address
        self.streams = self.tokens = 0
        self.bit = bit
        self.rows = max(1, rows)
        self.extra_streams = 0
        self.extra_tokens = 0.0
        self.penalty = 0.0
        self._share = self._headroom = 1.0
        self._since_s, self._slow_until_s = -inf, 0.0
        self.speed, self.slowness = Speed(), 1.0
        self.capacity = float(self.rows)

    @property
    def has_free_row(self) -> bool:
        return self.streams + self.extra_streams < self.rows

    @property
    def is_warming_up(self) -> bool:
        return self._share < 1.0 or self.slowness > 1.0

    def set_load(self, load: EngineLoad, *, tokens_a_stream: float) -> None:
        """What its engine reports, see engine_load.py. A stale load makes the endpoint full.

        An unknown one changes nothing. tokens_a_stream: what one stream of another process
        probably is; the requests that this process did not send count so much. From 90 % of the KV
        cache on, the endpoint gets less and less.
        """
        self.penalty = FULL if load.is_stale else 0.0
        if load.is_stale:
            return
        theirs = (load.waiting or 0) + (load.running or 0) - self.streams
        self.extra_streams = max(0, theirs)
        self.extra_tokens = self.extra_streams * tokens_a_stream
        over = max(0.0, (load.kv_in_use or 0.0) - KV_PRESSURE_FROM) / (1.0 - KV_PRESSURE_FROM)
        self._headroom = 1.0 - (1.0 - LEAST_KV_HEADROOM) * min(1.0, over)
        self._weigh()

    def start_slowly(self, now_s: float) -> None:
        """It is new, or its breaker has closed. `Chooser` then calls `warm_up` until it is over."""
        self._since_s, self.slowness = now_s, 1.0
        self.speed.forget()
        self.warm_up(now_s)

    def slow_down(self, slowness: float, now_s: float) -> None:
        """Measured now; 1: it is as fast as the others. `Chooser` then calls `warm_up`."""
        self.slowness, self._slow_until_s = slowness, now_s + SLOW_FOR_S
        self._weigh()

    def warm_up(self, now_s: float) -> bool:
        """Returns whether it is not over. Also tries an endpoint again that was slow, and that
        nothing was sent to since.
        """
        if self.slowness > 1.0 and now_s >= self._slow_until_s:
            self.start_slowly(self._slow_until_s)
        self._share = slow_start_share(now_s - self._since_s)
        self._weigh()
        return self.is_warming_up

    def _weigh(self) -> None:
        self.capacity = self.rows * self._share * self._headroom / self.slowness


AnyCandidate = TypeVar("AnyCandidate", bound=Candidate)


class Candidates(Generic[AnyCandidate]):
    """Endpoints that may be chosen now. Make it when they change, not for each request."""

    __slots__ = ("bits", "members")

    def __init__(self, members: Iterable[AnyCandidate]) -> None:
        self.members = tuple(members)
        self.bits = 0
        for member in self.members:
            self.bits |= member.bit

    def without(self, addresses: Collection[str]) -> Candidates[AnyCandidate]:
        """Without the endpoints where a request has failed already."""
        if not addresses:
            return self
        return Candidates(one for one in self.members if one.address not in addresses)
