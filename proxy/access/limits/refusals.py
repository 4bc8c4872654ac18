"""A refusal of the ledger as the error that the caller gets. Used by `reservation`."""

from __future__ import annotations

import math

from proxy.domain.errors import ErrorCode, RateLimited
from proxy.domain.price import NANOS
from proxy.state.meters import NEVER_US, Meter, MeterKind, Refusal

SCOPES = {"tenant": "your organization", "key": "your key", "model": "this model"}


def error_of(refusal: Refusal, amount: int) -> RateLimited:
    """amount: that the request needs of the meter that refuses."""
    meter = refusal.meter
    wait_s = refusal.wait_us / 1e6
    if refusal.wait_us >= NEVER_US:
        return RateLimited(
            f"{_limit(meter)}, and this request alone may need {_amount(meter, amount)}. Ask for "
            "fewer output tokens, or send a shorter prompt.",
            retry_after_s=math.inf,
            code=ErrorCode.REQUEST_EXCEEDS_LIMIT,
            limit=meter.name,
        )
    match meter.kind:
        case MeterKind.GAUGE:
            advice, code = (
                "all of them are in use. Try again when one has ended",
                ErrorCode.CONCURRENCY_LIMIT_EXCEEDED,
            )
        case MeterKind.PERIOD:
            left = _amount(meter, refusal.look(refusal.at)[0])
            advice, code = (
                f"{left} are left, and this request may need {_amount(meter, amount)}. The next "
                "month begins at 00:00 UTC on its first day",
                ErrorCode.INSUFFICIENT_QUOTA,
            )
        case _:
            advice = f"it is reached. Try again in {wait_s:.3g} seconds"
            code = ErrorCode.RATE_LIMIT_EXCEEDED
    return RateLimited(
        f"{_limit(meter)}: {advice}.", retry_after_s=wait_s, code=code, limit=meter.name
    )


def _limit(meter: Meter) -> str:
    scope, _, name = meter.name.partition(".")
    most = meter.limit
    if meter.kind is MeterKind.RATE:
        rate = 1e6 / meter.span_us
        return f"The limit {name} of {SCOPES[scope]} is {rate:.4g}, of which {most} at once"
    return f"The limit {name} of {SCOPES[scope]} is {_amount(meter, most)}"


def _amount(meter: Meter, amount: int) -> str:
    return f"{amount / NANOS:.6g}" if meter.name.endswith("monthly_budget") else str(amount)
