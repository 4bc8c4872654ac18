"""What a load run measured. Written by the generators, each a process of its own, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one run. Gaps lie between two arrivals of one stream. `client_s`: the generator's CPU."""

    tokens: int
    wall_s: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    gap_most_ms: float
    arrivals: int
    client_s: float
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Seconds on one clock: when it was asked for, and when each arrival with tokens came."""

    began: float
    arrived: Sequence[float]
    tokens: int


def figures_of(
    streams: Sequence[Stream], *, wall_s: float, client_s: float, errors: int
) -> Figures:
    first = [stream.arrived[0] - stream.began for stream in streams if stream.arrived]
    gaps = [
        after - before
        for stream in streams
        for before, after in zip(stream.arrived, stream.arrived[1:], strict=False)
    ]
    return Figures(
        tokens=sum(stream.tokens for stream in streams),
        wall_s=wall_s,
        ttft_p50_ms=percentile_ms(first, 50),
        ttft_p99_ms=percentile_ms(first, 99),
        gap_p50_ms=percentile_ms(gaps, 50),
        gap_p99_ms=percentile_ms(gaps, 99),
        gap_most_ms=percentile_ms(gaps, 100),
        arrivals=len(gaps) + len(first),
        client_s=client_s,
        errors=errors,
    )


def percentile_ms(values_s: Sequence[float], percent: float) -> float:
    """0 where there are none."""
    if not values_s:
        return 0.0
    ordered = sorted(values_s)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000
