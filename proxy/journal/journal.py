"""Writes records in a thread of their own, and removes old ones. `app` makes it.

A request never waits for it: what does not fit into memory or the folder is counted and dropped.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, ClassVar

import orjson
import structlog
from typing_extensions import Self

from proxy import background
from proxy.telemetry.kept_content import HeldBytes, fields_of, may_be_kept

VERSION = 1  # of the lines
SWEEP_S = 60.0
NAME = re.compile(r"(\d{4}-\d\d-\d\d)\.[0-9a-f]+\.jsonl")
LARGEST = 4_000_000  # bytes of one request and its answer
MOST_HELD = 64_000_000  # bytes in the memory of one process, until they are written
logger = structlog.get_logger(__name__)


class Outcome(str, Enum):
    """TOO_LARGE: the request with its answer. OVERLOADED: too much waits in memory to be written.
    FULL: the records of today alone reach the bound. FAILED: the file cannot be written.
    """

    WRITTEN = "written"
    NOT_STORED = "store_false"
    INVALID = "invalid"
    TOO_LARGE = "too_large"
    OVERLOADED = "overloaded"
    FULL = "full"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One request with its answer: the fields of a line of JSON, in their order.

    model: as the body names it. body, answer: as they were sent; of a stream, all its events. No
    headers: they have keys. is_complete: the answer came to its end. ttft_ms: until the answer's
    first byte, None without one.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}  # where a line is read

    version: int = VERSION
    at: datetime
    tenant: str
    key_id: str
    request_id: str
    path: str
    model: str | None = None
    body: str
    status: int | None
    answer: str
    is_complete: bool
    ttft_ms: float | None
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """bytes: of all files. sample: the share of requests that is recorded, 0 to 1."""

    keep_days: int
    bytes: int
    sample: float = 1.0


def record_files(folder: Path) -> Iterator[tuple[date, Path]]:
    """The files of records with their days, the oldest first: one a day and process.

    Raises OSError.
    """
    found = sorted(folder.iterdir()) if folder.exists() else []
    for file in found:
        if (match := NAME.fullmatch(file.name)) is not None:
            yield date.fromisoformat(match[1]), file


class Journal:
    """`async with` writes, and removes old records once a minute, until the body ends. Only its
    owner may enter the folder, or read the files.

    count: gets the outcome of each record that was begun. draw: a number from 0 to 1, exclusive.
    """

    def __init__(
        self,
        folder: Path,
        limits: JournalLimits,
        count: Callable[[str], None],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits
        self._folder = folder
        self._writer = token_hex(4)  # this process, in the names of its files
        self._count = count
        self._now = now
        self._draw = draw
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._held = HeldBytes(MOST_HELD)
        self._file: tuple[date, BinaryIO] | None = None
        self._bytes = 0  # of all files, as far as this process knows
        self._is_full = self._is_failing = self._is_closed = False

    async def __aenter__(self) -> Self:
        await self._run_sweep()
        self._sweeping = asyncio.create_task(self._sweep_regularly())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        await background.end([self._sweeping])
        await asyncio.to_thread(self._thread.shutdown)  # after all that waits
        self._close()

    def wants(self) -> bool:
        """Draws whether the next request is one of the sample."""
        return self._draw() < self._limits.sample

    def hold(self, size: int) -> bool:
        """Whether so many bytes more may be held. Those of one record are given back together."""
        return self._held.hold(size)

    def settle(self, held: int, outcome: Outcome) -> None:
        """Gives back what was held of a record, and counts what became of it."""
        self._held.give_back(held)
        self._count(outcome.value)

    def add(self, record: Recorded, held: int) -> None:
        """held: the bytes that `hold` has granted for it."""
        if self._is_closed:  # a request that is abandoned with the proxy
            self.settle(held, Outcome.FAILED)
        else:
            self._thread.submit(self._keep, record, held)

    def _keep(self, record: Recorded, held: int) -> None:
        outcome = Outcome.FAILED
        try:
            outcome = self._written(record)
            self._is_failing = False
        except OSError as error:
            self._fail(error)
        finally:
            self.settle(held, outcome)

    def _written(self, record: Recorded) -> Outcome:
        """Raises OSError."""
        fields = fields_of(record.body)
        if fields is None:
            return Outcome.INVALID
        if not may_be_kept(fields):
            return Outcome.NOT_STORED
        model = fields.get("model")
        record = replace(record, model=model if isinstance(model, str) else None)
        line = orjson.dumps(record, option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE)
        if self._is_full or self._bytes + len(line) > self._limits.bytes:
            self._note_full(is_full=True)  # until the next sweep
            return Outcome.FULL
        if self._of_today().write(line) < len(line):
            raise OSError("the file system is full")
        self._bytes += len(line)
        return Outcome.WRITTEN

    def _of_today(self) -> BinaryIO:
        """The open file. A day, and a file after a failure, begin with a new line."""
        today = self._now().date()
        if self._file is None or self._file[0] != today:
            self._close()
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._folder / f"{today.isoformat()}.{self._writer}.jsonl"
            path.touch(mode=0o600)
            self._file = today, path.open("ab", buffering=0)
            if self._file[1].tell():
                self._file[1].write(b"\n")
        return self._file[1]

    def _fail(self, error: OSError) -> None:
        if not self._is_failing:
            logger.error(
                "records cannot be written",
                folder=str(self._folder),
                detail=str(error),
                advice="look at space and rights in RECORD_DIR; requests are answered all the same",
            )
        self._is_failing = True
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file[1].close()

    async def _sweep_regularly(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self._run_sweep()

    async def _run_sweep(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._sweep)

    def _sweep(self) -> None:
        try:
            self._bytes = self._remove_old(self._now().date())
        except OSError as error:
            self._fail(error)
        else:
            self._note_full(is_full=self._bytes >= self._limits.bytes)

    def _remove_old(self, today: date) -> int:
        """Removes files that are too old, then the oldest of those that are too much.

        Files of today are not removed. Returns the bytes that are left. Raises OSError.
        """
        first = today - timedelta(days=self._limits.keep_days)
        sizes = {path: (day, _size(path)) for day, path in record_files(self._folder)}
        total = sum(size for _, size in sizes.values())
        for path, (day, size) in sizes.items():
            if day < first or (total > self._limits.bytes and day < today):
                path.unlink(missing_ok=True)
                total -= size
        return total

    def _note_full(self, *, is_full: bool) -> None:
        if is_full and not self._is_full:
            logger.warning(
                "no more is recorded today",
                folder=str(self._folder),
                advice="raise MAX_RECORD_GB, or lower RECORD_SAMPLE",
            )
        self._is_full = is_full


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # another process has removed it
        return 0
