"""Logs that a source cannot be read, and that it can be read again: one line each."""

from __future__ import annotations

import structlog

MOST_REASONS = 8  # logged in one outage
REASON_CHARS = 500

logger = structlog.get_logger(__name__)


class Outage:
    """source: for the log. A second reason in the same outage is logged, too, but none twice."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._reasons: set[str] = set()

    def failed(self, reason: str) -> None:
        reason = reason[:REASON_CHARS]
        if reason not in self._reasons and len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
            logger.warning(
                "endpoints cannot be found",
                source=self._source,
                reason=reason,
                advice="look at the source; the last known endpoints are used until it answers",
            )

    def ended(self) -> None:
        if self._reasons:
            self._reasons.clear()
            logger.info("endpoints can be found again", source=self._source)
