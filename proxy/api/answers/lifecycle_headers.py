"""The response headers of a model that is deprecated, or will be. Used by `stream_writer`.

Deprecation: RFC 9745, a structured date (seconds, RFC 9651). Sunset: RFC 8594, an HTTP date. Link:
the relation types that both RFCs register.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from email.utils import format_datetime
from functools import lru_cache

from proxy.domain.lifecycle import Lifecycle

NAMES = ("deprecation", "sunset", "link")


@lru_cache(maxsize=64)
def lifecycle_headers(lifecycle: Lifecycle) -> tuple[tuple[str, str], ...]:
    return tuple(_headers(lifecycle))


def _headers(lifecycle: Lifecycle) -> Iterator[tuple[str, str]]:
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
