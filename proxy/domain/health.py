"""What is wrong with this server, for its readiness."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """message: names the category only, since anybody may read it. is_fatal: no request can be
    served until it is over.
    """

    message: str
    is_fatal: bool
