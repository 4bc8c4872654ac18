"""Quantiles of a Prometheus histogram, as Prometheus' own `histogram_quantile` has them."""

from __future__ import annotations

import math
from collections.abc import Mapping


def quantile(share: float, buckets: Mapping[float, float]) -> float | None:
    """share: 0 to 1. buckets: how many observations are at most so large, by upper bound, with the
    bound infinity. Linear within a bucket; what is in the last one counts as its lower bound.

    None: there are no observations.
    """
    bounds = sorted(buckets)
    if not bounds or not buckets[bounds[-1]] > 0:
        return None
    rank = share * buckets[bounds[-1]]
    lower = below = 0.0
    for bound in bounds:
        if buckets[bound] >= rank and buckets[bound] > below:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / (buckets[bound] - below)
        lower, below = bound, buckets[bound]
    return lower
