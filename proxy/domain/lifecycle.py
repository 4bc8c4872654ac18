"""Until when a model is meant to be used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """Both dates begin at midnight in UTC. None: no date is set.

    deprecated: callers should use another model from then on. sunset: the model may be gone then.
    link: the URL of a page about both.
    """

    deprecated: date | None = None
    sunset: date | None = None
    link: str | None = None

    def is_deprecated(self, today: date) -> bool:
        """Whether callers should use another model already."""
        first = self.deprecated or self.sunset
        return first is not None and first <= today


NO_END = Lifecycle()
