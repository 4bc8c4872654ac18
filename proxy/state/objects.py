"""Objects by path, which outlive the process: in a folder, or in a store (`remote_objects`)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, ParamSpec, Protocol, TypeVar

from proxy.domain.errors import StoreUnavailable

PIECE_BYTES = 65_536
UNFINISHED = ".unfinished"  # a folder of writes that are not complete
LEFT_S = 86_400
AWAY = "Files and batches cannot be read or written at present. Try again later."
Found = tuple[str, int]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Objects(Protocol):
    """Paths are words joined by `/`. All methods raise StoreUnavailable."""

    async def create(self, path: str, data: bytes) -> bool:
        """Writes it whole; False if there is one already, which stays. Only one caller creates it,
        in whatever process.
        """
        ...

    async def write(self, path: str, pieces: AsyncIterable[bytes]) -> None:
        """Replaces it when all pieces have come; what the pieces raise leaves it as it was."""
        ...

    async def read(self, path: str, start: int = 0, end: int | None = None) -> bytes | None:
        """The bytes from `start` to before `end`; None where there is no such object."""
        ...

    def pieces(self, path: str) -> AsyncIterator[bytes]:
        """All of its bytes. Raises StoreUnavailable, also where there is no such object."""
        ...

    async def copy(self, source: str, target: str) -> bool:
        """False where there is no source."""
        ...

    async def below(self, folder: str) -> list[Found]:
        """All below the folder, in order: the path from the folder on, and the bytes."""
        ...

    async def folders(self, folder: str) -> list[str]:
        """The folders directly in it."""
        ...

    async def delete(self, paths: Sequence[str]) -> None:
        """Some of them may be gone already."""
        ...


async def threaded(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """In a thread, with StoreUnavailable for errors of the disk."""
    try:
        return await asyncio.to_thread(function, *args, **kwargs)
    except OSError as error:
        raise StoreUnavailable(AWAY, detail=str(error)) from error


class FolderObjects:
    """Implements Objects. The folder is made when it is first needed, for its owner only."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._is_tidy = False  # of what killed processes have left

    async def create(self, path: str, data: bytes) -> bool:
        return await threaded(self._create, path, data)

    async def write(self, path: str, pieces: AsyncIterable[bytes]) -> None:
        part = await threaded(self._part)
        try:
            with await threaded(part.open, "wb") as file:
                async for piece in pieces:
                    await threaded(file.write, piece)
                await threaded(_flush, file)
            await threaded(self._move, part, path)
        finally:
            part.unlink(missing_ok=True)

    async def read(self, path: str, start: int = 0, end: int | None = None) -> bytes | None:
        return await threaded(self._read, path, start, end)

    async def pieces(self, path: str) -> AsyncIterator[bytes]:
        with await threaded((self._root / path).open, "rb") as file:
            while piece := await threaded(file.read, PIECE_BYTES):
                yield piece

    async def copy(self, source: str, target: str) -> bool:
        return await threaded(self._copy, source, target)

    async def below(self, folder: str) -> list[Found]:
        return await threaded(self._below, folder)

    async def folders(self, folder: str) -> list[str]:
        return await threaded(self._folders, folder)

    async def delete(self, paths: Sequence[str]) -> None:
        await threaded(self._delete, paths)

    def _part(self) -> Path:
        folder = self._root / UNFINISHED
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True)
        if not self._is_tidy:
            self._is_tidy = True
            for left in folder.iterdir():
                if left.stat().st_mtime < time.time() - LEFT_S:
                    left.unlink(missing_ok=True)
        return folder / token_hex(16)

    def _create(self, path: str, data: bytes) -> bool:
        target = self._root / path
        if target.exists():
            return False
        part = self._part()
        try:
            with part.open("wb") as file:
                file.write(data)
                _flush(file)
            self._put(os.link, part, target)
        except FileExistsError:
            return False
        finally:
            part.unlink(missing_ok=True)
        return True

    def _move(self, part: Path, path: str) -> None:
        self._put(os.replace, part, self._root / path)

    def _put(self, how: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        for is_last in (False, True):  # its folder may be removed, being empty
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                return how(source, target)
            except FileNotFoundError:
                if is_last or not source.exists():
                    raise

    def _read(self, path: str, start: int, end: int | None) -> bytes | None:
        try:
            with (self._root / path).open("rb") as file:
                file.seek(start)
                return file.read(-1 if end is None else end - start)
        except FileNotFoundError:
            return None

    def _copy(self, source: str, target: str) -> bool:
        try:  # a link, for objects never change
            self._put(os.link, self._root / source, self._root / target)
        except FileNotFoundError:
            return False
        except FileExistsError:
            pass
        return True

    def _below(self, folder: str) -> list[Found]:
        root, found = self._root / folder, []
        for place, _, names in os.walk(root):
            for name in names:
                path = Path(place, name)
                try:
                    found.append((path.relative_to(root).as_posix(), path.stat().st_size))
                except FileNotFoundError:
                    continue  # deleted meanwhile
        return sorted(found)

    def _folders(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._root / folder) as found:
                return sorted(each.name for each in found if each.is_dir())
        except FileNotFoundError:
            return []

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            target = self._root / path
            target.unlink(missing_ok=True)
            for folder in target.parents:
                if folder == self._root:
                    break
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    continue  # somebody else has removed it
                except OSError:
                    break  # it is not empty


def _flush(file: BinaryIO) -> None:
    """What is written survives a power cut."""
    file.flush()
    os.fsync(file.fileno())
