"""How fast an endpoint answers, compared with the others that serve the same build.

Times are what streams wait for the endpoint: a client that reads slowly does not change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_low

NOTICED = 3.0  # times the median of the others; load and chance explain less
OUTLIER = 5.0
SLOW_STREAMS = 5  # one after another make the endpoint an outlier
SHORT_PROMPT = 256  # tokens; times to first tokens are converted to a prompt of no length
WEIGHT_OF_NEWEST = 0.3


class Measure:
    """One kind of time: its running mean, and what came last.

    noise_s: differences that mean nothing. outlier_s: an outlier is slower by more than this.
    """

    __slots__ = ("_noise_s", "_outlier_s", "last_s", "mean_s")

    def __init__(self, *, noise_s: float, outlier_s: float) -> None:
        self._noise_s, self._outlier_s = noise_s, outlier_s
        self.mean_s: float | None = None
        self.last_s = 0.0

    def add(self, newest_s: float) -> None:
        mean_s, self.last_s = self.mean_s, newest_s
        step_s = 0.0 if mean_s is None else WEIGHT_OF_NEWEST * (newest_s - mean_s)
        self.mean_s = newest_s if mean_s is None else mean_s + step_s

    def compared(self, others: Iterable[Measure]) -> tuple[float, bool]:
        """See Speed.compared."""
        known = [one.mean_s for one in others if one.mean_s is not None]
        if self.mean_s is None or not known:
            return 1.0, False
        usual_s = median_low(known)
        base_s = usual_s + self._noise_s
        is_outlier = (
            self.last_s + self._noise_s >= OUTLIER * base_s
            and self.last_s - usual_s > self._outlier_s
        )
        return (self.mean_s + self._noise_s) / base_s, is_outlier


class Speed:
    """How fast one endpoint answers, for one build. slow_streams: outliers, one after another."""

    __slots__ = ("each_token", "first_token", "slow_streams")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.first_token = Measure(noise_s=0.1, outlier_s=1.0)
        self.each_token = Measure(noise_s=0.002, outlier_s=0.1)
        self.slow_streams = 0

    def began(self, waited_s: float, computed_tokens: int) -> None:
        """A stream's first token came. computed_tokens: of the prompt, without cached ones."""
        share = SHORT_PROMPT / (SHORT_PROMPT + max(0, computed_tokens))
        self.first_token.add(waited_s * share)

    def compared(self, others: Sequence[Speed]) -> tuple[float, bool]:
        """How many times slower than the others' median; whether the last time is an outlier."""
        first, is_late = self.first_token.compared(one.first_token for one in others)
        each, is_slow = self.each_token.compared(one.each_token for one in others)
        return max(first, each), is_late or is_slow
