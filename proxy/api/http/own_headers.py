"""Our own headers: how long a request may wait, what the head of a generated answer reports, and
where a limited caller stands, on every response.

Limits have two sets: OpenAI's (`x-ratelimit-limit-requests`, …), and `X-RateLimit-Limit`, … .
Deprecation: RFC 9745, a structured date (seconds, RFC 9651). Sunset: RFC 8594, an HTTP date. Link:
the relation types that both RFCs register.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timezone
from email.utils import format_datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from proxy.domain.errors import ErrorCode, InvalidRequest, echoed
from proxy.domain.model import NO_END, Lifecycle
from proxy.domain.record import RequestRecord, running_record
from proxy.domain.request import GenerationRequest

if TYPE_CHECKING:  # the processes that parse bodies import this file
    from proxy.access.limits.caller_meters import Standings

QUEUE = ("x-queue-position", "x-queue-wait")
HEADER = "x-queue-timeout-ms"
MOST_MS = 3_600_000
_NAME = HEADER.encode()
# For the OpenAPI document: the `openapi_extra` of routes that generate.
TAKES_HEADER = {
    "parameters": [
        {
            "name": HEADER,
            "in": "header",
            "required": False,
            "description": "How long the request waits for a row of its model, in milliseconds; 0: "
            "not at all. Without it: as long as the server lets it.",
            "schema": {"type": "integer", "minimum": 0, "maximum": MOST_MS},
        }
    ]
}


def with_patience(request: GenerationRequest) -> GenerationRequest:
    """The request with what its HTTP request asks for; of a WebSocket, the one that opened it.

    Raises:
        InvalidRequest: the header is not a whole number from 0 to MOST_MS.
    """
    headers = running_record().headers
    if _NAME not in dict(headers):
        return request
    given = [value for name, value in headers if name == _NAME]
    value = given[0].strip()
    is_number = value.isdigit() and len(value) <= len(str(MOST_MS)) and int(value) <= MOST_MS
    if len(given) > 1 or not is_number:
        shown = b", ".join(given).decode("latin-1")
        raise InvalidRequest(
            f"'{HEADER}' is {echoed(shown)}: it must be one whole number of milliseconds from 0, "
            f"which means not to wait, to {MOST_MS}.",
            code=ErrorCode.INVALID_PARAMETER,
            param=HEADER,
        )
    return replace(request, queue_patience_s=int(value) / 1000)


def headers_of(record: RequestRecord, now_s: float) -> dict[str, str]:
    """Our own headers of an answer, with the values that are known when its head is sent.

    now_s: the event loop's.
    """
    has_waited = record.waits or record.queue_s is not None
    headers = queue_headers(record, now_s) if has_waited else {}
    if record.attempts is not None:
        headers["x-attempts"] = str(record.attempts)
    if record.resends:
        headers["x-resends"] = str(record.resends)
    if record.continued:
        headers["x-continued"] = str(record.continued)
        headers["x-continued-by"] = record.continued_by or "ids"
    if record.unenforced:
        headers["x-unenforced-keywords"] = ", ".join(record.unenforced)
    if record.priority is not None:  # a higher one goes first
        headers["x-priority-class"] = str(record.priority)
    if record.capped_priority is not None:  # the sign of the body's `priority`
        headers["x-priority-capped"] = str(-record.capped_priority)
    if record.clamped_max_tokens is not None:
        headers["x-max-tokens-clamped"] = str(record.clamped_max_tokens)
    if record.dropped_tools:
        headers["x-dropped-tools"] = ", ".join(record.dropped_tools)
    if record.fallback_from is not None:
        headers["x-fallback-from"] = record.fallback_from
    if record.lifecycle is not NO_END:
        headers.update(lifecycle_headers(record.lifecycle))
    return headers


def queue_headers(record: RequestRecord, now_s: float) -> dict[str, str]:
    """None for an answer that did not wait. An answer that has waited has position 0; the wait of
    one that still waits is what it will probably be in all.

    now_s: the event loop's time.
    """
    queued, since_s = record.queued, record.queued_since
    if queued is not None and since_s is not None:
        position = queued.position
        wait_s = max(record.queue_s or 0.0, now_s - since_s, record.expected_wait_s)
    elif record.queue_s is not None:
        position, wait_s = 0, record.queue_s
    else:
        return {}
    return dict(zip(QUEUE, (str(position), f"{wait_s:.3f}"), strict=True))


@lru_cache(maxsize=64)
def lifecycle_headers(lifecycle: Lifecycle) -> tuple[tuple[str, str], ...]:
    return tuple(_of_lifecycle(lifecycle))


def _of_lifecycle(lifecycle: Lifecycle) -> Iterator[tuple[str, str]]:
    if lifecycle.deprecated is not None:
        yield "deprecation", f"@{int(_midnight(lifecycle.deprecated).timestamp())}"
    if lifecycle.sunset is not None:
        yield "sunset", format_datetime(_midnight(lifecycle.sunset), usegmt=True)
    if lifecycle.link is not None:
        given = {"deprecation": lifecycle.deprecated, "sunset": lifecycle.sunset}
        relations = " ".join(name for name, day in given.items() if day is not None)
        if relations:
            yield "link", f'<{lifecycle.link}>; rel="{relations}"; type="text/html"'


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=timezone.utc)


def limit_headers(standings: Standings) -> list[tuple[bytes, bytes]]:
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
    if (first := standings.first) is not None:
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
