"""W3C's trace context: the header `traceparent` of a caller -> the Trace of its request. Pure.

https://www.w3.org/TR/trace-context/ (level 1, 2021-11-23).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from proxy.telemetry.request_log import Headers

_HEADER = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_INVALID_VERSION = b"ff"
_SAMPLED = 1
LONGEST_STATE = 512  # characters of `tracestate`; a longer one is not passed on


@dataclass(frozen=True, slots=True, kw_only=True)
class CallersTrace:
    """The caller's span. state: its `tracestate`, for our own spans."""

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""


def callers_trace(headers: Headers) -> CallersTrace | None:
    """None where the header is missing, invalid, or there twice: the request begins a trace then.

    headers: names in lower case.
    """
    parents = [value for name, value in headers if name == b"traceparent"]
    found = _HEADER.fullmatch(parents[0].strip()) if len(parents) == 1 else None
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    is_known = version != _INVALID_VERSION and (version != b"00" or rest is None)
    trace, span = int(trace_id, 16), int(span_id, 16)
    if not (is_known and trace and span):
        return None
    return CallersTrace(
        trace_id=trace,
        span_id=span,
        is_sampled=bool(int(flags, 16) & _SAMPLED),
        state=_state(headers),
    )


def _state(headers: Headers) -> str:
    """All `tracestate` headers as one list."""
    values = [value.decode("latin-1") for name, value in headers if name == b"tracestate"]
    joined = ",".join(values)
    return joined if len(joined) <= LONGEST_STATE else ""
