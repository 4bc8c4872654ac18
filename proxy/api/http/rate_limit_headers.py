"""The headers that show limited callers where they stand, on every response.

Two sets of headers: OpenAI's (`x-ratelimit-limit-requests`, …), and `X-RateLimit-Limit`, … .
"""

from __future__ import annotations

import math

from proxy.access.limits.caller_meters import Standings

NAMES = (
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-exceeded",
    "x-ratelimit-remaining-budget",
    "x-ratelimit-remaining-monthly-tokens",
)


def headers_of(standings: Standings) -> list[tuple[bytes, bytes]]:
    requests, tokens = standings.requests, standings.tokens
    found: list[tuple[bytes, bytes]] = []
    if requests is not None:
        limit, left, reset_s = requests
        found += (
            (b"x-ratelimit-limit-requests", b"%d" % limit),
            (b"x-ratelimit-remaining-requests", b"%d" % left),
            (b"x-ratelimit-reset-requests", duration(reset_s).encode()),
        )
    if tokens is not None:
        limit, left, reset_s = tokens
        found += (
            (b"x-ratelimit-limit-tokens", b"%d" % limit),
            (b"x-ratelimit-remaining-tokens", b"%d" % left),
            (b"x-ratelimit-reset-tokens", duration(reset_s).encode()),
        )
    if (first := requests or tokens) is not None:
        found += (
            (b"X-RateLimit-Limit", b"%d" % first.limit),
            (b"X-RateLimit-Remaining", b"%d" % first.remaining),
            (b"X-RateLimit-Reset", b"%d" % math.ceil(first.reset_s)),
        )
    if (budget := standings.budget) is not None:
        found.append((b"x-ratelimit-remaining-budget", b"%.6f" % budget))
    if (monthly := standings.monthly_tokens) is not None:
        found.append((b"x-ratelimit-remaining-monthly-tokens", b"%d" % monthly))
    return found


def duration(seconds: float) -> str:
    """As OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `1h0m0s`; rounded up to a millisecond."""
    ms = math.ceil(seconds * 1000)
    if ms < 1000:
        return f"{ms}ms"
    minutes, ms = divmod(ms, 60_000)
    text = f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if not minutes:
        return text
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
