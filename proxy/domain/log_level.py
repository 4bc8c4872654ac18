"""The level of the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class LogLevel(str, Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelInForce:
    """configured: of the settings. returns_in_s: seconds until it holds again; None: it does now,
    or no end was given.
    """

    level: LogLevel
    configured: LogLevel
    returns_in_s: float | None = None
