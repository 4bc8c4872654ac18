"""The highest priority that a caller's request gets. Called by the request limiter."""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.identity import Caller
from proxy.domain.record import RequestRecord
from proxy.domain.request import GenerationRequest


def under_ceiling(
    request: GenerationRequest, caller: Caller, most: int, report: RequestRecord
) -> GenerationRequest:
    """The request with the caller's ceiling, where its priority is higher; notes it in the report.

    A request without a priority has 0, so a ceiling below 0 is its priority.

    Args:
        most: the ceiling of a caller that has none of its own.
    """
    ceiling = most if caller.max_priority is None else caller.max_priority
    if (request.priority or 0) <= ceiling:
        return request
    if request.priority is None:
        return replace(request, priority=ceiling, has_assigned_priority=True)
    report.capped_priority = ceiling
    return replace(request, priority=ceiling)
