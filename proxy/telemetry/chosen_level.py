"""The level of the log that an operator chose, in a file that the workers of one proxy share.

Implements domain.log_level.LogLevels. Each worker reads the file three times a second, in a thread.
It ends with the proxy: nobody finds a forgotten `debug` after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

import orjson
from typing_extensions import Self

from triton_openai.proxy.domain.errors import StoreUnavailable
from triton_openai.proxy.domain.log_level import LevelInForce, LogLevel

FILE = "log-level.json"
POLL_S = 0.3

Chosen = tuple[LogLevel, float | None]  # and until when, of the clock


class ChosenLevel:
    """shared: the workers' folder; None for one process. apply: makes a level hold in this one.

    clock: the same in all processes of a host, as time.monotonic is. `async with` follows the file
    until the body ends; then the configured level holds again.
    """

    def __init__(
        self,
        configured: LogLevel,
        shared: Path | None,
        apply: Callable[[LogLevel], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = POLL_S,
    ) -> None:
        self._configured = configured
        self._file = None if shared is None else shared / FILE
        self._apply = apply
        self._clock = clock
        self._interval_s = interval_s
        self._chosen: Chosen = (configured, None)
        self._applied = configured
        self._stopping = asyncio.Event()
        self._changing = asyncio.Lock()  # an older level must not replace a newer one

    @property
    def in_force(self) -> LevelInForce:
        level, until = self._current()
        left_s = None if until is None else round(until - self._clock(), 1)
        return LevelInForce(level=level, configured=self._configured, returns_in_s=left_s)

    async def __aenter__(self) -> Self:
        await self._look()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await self._watching
        self._hold(self._configured)

    async def set(self, level: LogLevel, for_s: float | None) -> None:
        until = None if for_s is None or level is self._configured else self._clock() + for_s
        async with self._changing:
            await self._share((level, until))
            self._chosen = (level, until)
            self._hold(level)

    async def _share(self, chosen: Chosen) -> None:
        """With the other processes. Raises StoreUnavailable."""
        if self._file is None:
            return
        try:
            await asyncio.to_thread(_write, self._file, chosen)
        except OSError as error:
            raise StoreUnavailable(
                "The level was not changed, because the other processes of the proxy cannot learn "
                "of it: its folder for temporary files cannot be written.",
                detail=str(error),
            ) from error

    async def _watch(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval_s)
                return
            await self._look()

    async def _look(self) -> None:
        async with self._changing:
            if self._file is not None:
                found = await asyncio.to_thread(_read, self._file)
                self._chosen = self._chosen if found is None else found
            self._hold(self._current()[0])

    def _current(self) -> Chosen:
        _, until = self._chosen
        is_over = until is not None and self._clock() >= until
        return (self._configured, None) if is_over else self._chosen

    def _hold(self, level: LogLevel) -> None:
        if level is not self._applied:
            self._applied = level
            self._apply(level)


def _read(file: Path) -> Chosen | None:
    """None: nobody has chosen a level, or the file cannot be read; what is known holds on."""
    try:
        level, until = orjson.loads(file.read_bytes())
        return LogLevel(level), None if until is None else float(until)
    except (OSError, ValueError, TypeError):
        return None


def _write(file: Path, chosen: Chosen) -> None:
    """Replaces the file as a whole."""
    with NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as new:
        new.write(orjson.dumps(chosen))
    Path(new.name).replace(file)
