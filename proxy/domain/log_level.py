"""The level of the log, and the port through which operators change it while the proxy runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


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


class LogLevels(Protocol):
    """Reads and sets the log level of one proxy. Every worker follows within a second."""

    @property
    def in_force(self) -> LevelInForce: ...

    async def set(self, level: LogLevel, for_s: float | None) -> None:
        """for_s: for how long; None: until it is changed again, or the proxy stops.

        Raises StoreUnavailable: it could not be kept for the other workers.
        """
        ...
