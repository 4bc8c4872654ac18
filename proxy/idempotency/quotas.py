"""How much is kept of finished answers, and for how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """keep_s: for how long. bytes: of all kept answers. answers: of one tenant."""

    keep_s: float
    bytes: int
    answers: int
