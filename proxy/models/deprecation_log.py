"""One log line a day for each tenant that uses a deprecated model. Called by the service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone

import structlog

from proxy.domain.model import ModelCard

MAX_PAIRS = 10_000  # of model and tenant, remembered for a day; further ones are not logged
logger = structlog.get_logger()


def today() -> date:
    """In UTC."""
    return datetime.now(timezone.utc).date()


class DeprecationLog:
    """today: the current day, for tests."""

    def __init__(self, today: Callable[[], date] = today) -> None:
        self._today = today
        self._day: date | None = None
        self._logged: set[tuple[str, str]] = set()

    def note(self, card: ModelCard, tenant: str) -> None:
        """A tenant sends a request to a model."""
        lifecycle = card.lifecycle
        day = self._today()
        if day != self._day:
            self._day = day
            self._logged.clear()
        pair = (card.name, tenant)
        is_known = pair in self._logged or len(self._logged) >= MAX_PAIRS
        if is_known or not lifecycle.is_deprecated(day):
            return
        self._logged.add(pair)
        dates = {"deprecated": lifecycle.deprecated, "sunset": lifecycle.sunset}
        given = {name: date.isoformat() for name, date in dates.items() if date is not None}
        logger.warning(
            "deprecated model used",
            model=card.name,
            tenant=tenant,
            **given,
            advice="ask this tenant to move to the replacement before the model's sunset",
        )
