"""What became of a request's copy that a shadow deployment got."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ShadowOutcome(str, Enum):
    """COMPARED: both answers ended. DROPPED: never sent, since too many copies were running, or no
    row was free.

    FAILED: the copy raised an error. ABANDONED: the caller's answer ended early: its client
    disconnected, a stop string was complete, or it failed; or another stream got the copy's row.
    """

    COMPARED = "compared"
    DROPPED = "dropped"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowResult:
    """model: the public name. deployment: the shadow.

    is_comparable: equal engines give equal answers, since temperature is 0 or there is a seed.
    differences: of `text`, `finish_reason`, `prompt_tokens`, `completion_tokens`.
    """

    model: str
    deployment: str
    outcome: ShadowOutcome
    is_comparable: bool
    differences: tuple[str, ...] = ()
