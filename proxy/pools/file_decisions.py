"""What operators decided, in a file that the processes of one host share. No store is needed.

Implements domain.endpoints.Decisions. Each process looks at the file about three times a second,
in a thread. A change is made under a lock, and replaces the file as a whole.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from triton_openai.proxy import background
from triton_openai.proxy.domain.endpoints import MOST_DRAINED
from triton_openai.proxy.domain.errors import Conflict, ErrorCode, StoreUnavailable
from triton_openai.proxy.domain.weight_history import WeightHistory, Weights
from triton_openai.proxy.pools.decisions_file import (
    NO_DECISIONS,
    DecisionsFile,
    UnreadableDecisions,
    read,
    write,
)

FILE, LOCK = "decisions.json", "decisions.lock"
POLL_S = 0.3
LOCK_WAIT_S, LOCK_RETRY_S = 5.0, 0.01  # a change takes milliseconds

Version = tuple[int, int, int] | None  # of the file: inode, time and size; None: there is no file
Change = Callable[[DecisionsFile], DecisionsFile]
logger = structlog.get_logger(__name__)


class FileDecisions:
    """folder: exists, and is this user's. `async with` reads the file until the body ends.

    A file that cannot be read changes nothing: the last decisions hold, and the log says why. No
    file is no decisions.
    """

    def __init__(
        self, folder: Path, *, interval_s: float = POLL_S, lock_wait_s: float = LOCK_WAIT_S
    ) -> None:
        self._path = folder / FILE
        self._lock = folder / LOCK
        self._interval_s = interval_s
        self._lock_wait_s = lock_wait_s
        self._seen: Version = None
        self._decisions = NO_DECISIONS
        self._fault = ""  # of the last read; empty: it worked

    @property
    def drained(self) -> frozenset[str]:
        return self._decisions.drained

    def weights(self, model: str) -> Weights | None:
        return self._decisions.history(model).current

    async def __aenter__(self) -> FileDecisions:
        await asyncio.to_thread(self._look)
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        await background.end([self._watching])

    async def drain(self, address: str, *, actor: str) -> None:
        await self._change(lambda found: _with_drained(found, address))
        logger.info("endpoint drained", address=address, actor=actor)

    async def undrain(self, address: str, *, actor: str) -> None:
        await self._change(lambda found: found.with_drained(found.drained - {address}))
        logger.info("endpoint undrained", address=address, actor=actor)

    async def set_weights(self, model: str, weights: Weights, *, actor: str) -> None:
        found = await self._change(
            lambda found: found.with_history(model, found.history(model).changed(weights))
        )
        _log_weights(model, found.history(model), actor)

    async def roll_back(self, model: str, *, actor: str) -> Weights | None:
        found = await self._change(
            lambda found: found.with_history(model, found.history(model).rolled_back(model))
        )
        _log_weights(model, found.history(model), actor)
        return found.history(model).current

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await asyncio.to_thread(self._look)

    async def _change(self, change: Change) -> DecisionsFile:
        """Raises StoreUnavailable: the file cannot be read or written."""
        try:
            return await asyncio.to_thread(self._changed, change)
        except (OSError, UnreadableDecisions) as error:
            raise StoreUnavailable(
                "The decision was not kept, because the proxy cannot use its file of decisions "
                "(the log says why). Repair or delete that file.",
                detail=f"{self._path}: {error}",
            ) from error

    def _changed(self, change: Change) -> DecisionsFile:
        with _locked(self._lock, wait_s=self._lock_wait_s):
            changed = change(read(self._path))
            write(self._path, changed)
            self._decisions, self._seen = changed, _version(self._path)
        return changed

    def _look(self) -> None:
        """Reads the file if it was changed. In a thread; raises nothing."""
        try:
            if _version(self._path) == self._seen:
                return
            with _locked(self._lock, wait_s=0):  # an older state must not replace a newer one
                version = _version(self._path)
                self._decisions = read(self._path)
                self._seen = version
        except BlockingIOError:
            pass  # a change is being made: the next look sees it
        except (OSError, UnreadableDecisions) as error:
            self._log_once(str(error))
        else:
            self._fault = ""

    def _log_once(self, fault: str) -> None:
        if fault != self._fault:
            logger.error(
                "decisions cannot be read, the last ones hold",
                detail=fault,
                advice="repair or delete the file; changes are refused until then",
            )
        self._fault = fault


def _with_drained(found: DecisionsFile, address: str) -> DecisionsFile:
    drained = found.drained | {address}
    if len(drained) > MOST_DRAINED:
        raise Conflict(
            f"{MOST_DRAINED} endpoints are drained, which is the most that are kept: undrain "
            "those that are gone.",
            code=ErrorCode.TOO_MANY_DECISIONS,
            param="address",
        )
    return found.with_drained(drained)


def _log_weights(model: str, history: WeightHistory, actor: str) -> None:
    logger.info("weights changed", model=model, weights=history.current, actor=actor)


def _version(path: Path) -> Version:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def _locked(path: Path, *, wait_s: float) -> Iterator[None]:
    """Excludes other threads and processes; the kernel ends the lock of one that dies.

    Raises BlockingIOError: somebody else holds the lock for longer than wait_s.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, time.monotonic() + wait_s)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        time.sleep(LOCK_RETRY_S)
