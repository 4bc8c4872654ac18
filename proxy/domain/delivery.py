"""How an answer reaches its caller, and what the service reports about it besides its events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from triton_openai.proxy.domain.output import Usage


class TokenCount(Protocol):
    """Counts the tokens of one engine stream while they arrive."""

    @property
    def usage(self) -> Usage: ...


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One for each request; the service fills it while the answer is made.

    is_live: events go to the caller as they come, so that none can be taken back. attempts: the
    most that one choice took, None where no answer is checked. unenforced: keywords of the
    caller's schema that nothing holds the answer to. counts: one for each engine stream of the
    request, of every choice, attempt and round of tools.
    """

    is_live: bool = False
    attempts: int | None = None
    unenforced: tuple[str, ...] = ()
    counts: list[TokenCount] = field(default_factory=list)

    def attempted(self, number: int) -> None:
        self.attempts = max(self.attempts or 0, number)

    @property
    def usage(self) -> Usage | None:
        """The tokens that all engine streams have sent so far; None before the first one."""
        usage = sum((count.usage for count in self.counts), start=Usage())
        return usage if usage.total_tokens else None
