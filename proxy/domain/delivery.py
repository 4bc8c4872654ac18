"""How an answer reaches its caller, and what is told of it beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One for each request; the service fills it while the answer is made.

    is_live: events go to the caller as they come, so that none can be taken back. attempts: the
    most that one choice took, None where no answer is checked. unenforced: keywords of the
    caller's schema that nothing holds the answer to.
    """

    is_live: bool = False
    attempts: int | None = None
    unenforced: tuple[str, ...] = ()

    def attempted(self, number: int) -> None:
        self.attempts = max(self.attempts or 0, number)
