"""The folder of records: one file a day and process, which of them are kept, and how much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import BinaryIO

NAME = re.compile(r"(\d{4}-\d\d-\d\d)\.[0-9a-f]+\.jsonl")
LARGEST = 4_000_000  # bytes of one request and its answer
MOST_HELD = 64_000_000  # bytes in the memory of one process, until they are written


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """bytes: of all files. sample: the share of requests that is recorded, 0 to 1."""

    keep_days: int
    bytes: int
    sample: float = 1.0
    record_bytes: int = LARGEST
    held_bytes: int = MOST_HELD


class JournalFolder:
    """Only its owner may enter it, or read its files. writer: the name of this process."""

    def __init__(self, path: Path, limits: JournalLimits, writer: str) -> None:
        self._path = path
        self._limits = limits
        self._writer = writer

    def opened(self, day: date) -> BinaryIO:
        """This process' file of a day, to append to. Raises OSError."""
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._path / f"{day.isoformat()}.{self._writer}.jsonl"
        file.touch(mode=0o600)
        return file.open("ab", buffering=0)

    def sweep(self, today: date) -> int:
        """Removes files that are too old, then the oldest of those that are too much.

        Files of today are not removed. Returns the bytes that are left. Raises OSError.
        """
        first = today - timedelta(days=self._limits.keep_days)
        left = []
        for day, file in record_files(self._path):
            if day < first:
                file.unlink(missing_ok=True)
            else:
                left.append((day, file, _size(file)))
        total = sum(size for *_, size in left)
        for day, file, size in left:
            if total > self._limits.bytes and day < today:
                file.unlink(missing_ok=True)
                total -= size
        return total


def record_files(folder: Path) -> Iterator[tuple[date, Path]]:
    """The files of records with their days, the oldest first. Raises OSError."""
    found = sorted(folder.iterdir()) if folder.exists() else []
    for file in found:
        if (match := NAME.fullmatch(file.name)) is not None:
            yield date.fromisoformat(match[1]), file


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # another process has removed it
        return 0
