"""The level of the log that an operator chose. Called by the routes of /admin/v1/log-level.

It ends with the proxy: nobody finds a forgotten `debug` after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from typing_extensions import Self

from proxy.domain.log_level import LevelInForce, LogLevel


class ChosenLevel:
    """apply: makes a level hold. At the end of `async with`, the configured level holds again."""

    def __init__(self, configured: LogLevel, apply: Callable[[LogLevel], None]) -> None:
        self._configured = self._level = configured
        self._apply = apply
        self._return: asyncio.TimerHandle | None = None

    @property
    def in_force(self) -> LevelInForce:
        left_s = None
        if self._return is not None:
            left_s = round(self._return.when() - asyncio.get_running_loop().time(), 1)
        return LevelInForce(level=self._level, configured=self._configured, returns_in_s=left_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.set(self._configured, None)

    def set(self, level: LogLevel, for_s: float | None) -> None:
        """for_s: for how long; None: until it is changed again, or the proxy stops."""
        if self._return is not None:
            self._return.cancel()
            self._return = None
        if for_s is not None and level is not self._configured:
            loop = asyncio.get_running_loop()
            self._return = loop.call_later(for_s, self.set, self._configured, None)
        if level is not self._level:
            self._level = level
            self._apply(level)
