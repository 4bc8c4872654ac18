"""Objects in a store by URL, such as `s3://bucket/folder`. Implements objects.Objects.

Credentials are the library's own, as for `build`. Its asynchronous calls abort the process at its
end (obstore 0.12.1, Python 3.11), so threads run the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import ParamSpec, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from proxy.domain.errors import StoreUnavailable
from proxy.state.objects import AWAY, Found

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
PIECE_BYTES = 1_048_576
AT_ONCE = 2  # parts of one object that are on their way


class RemoteObjects:
    """Raises ValueError: the URL names no store."""

    def __init__(self, url: str) -> None:
        try:
            self._store = from_url(url)
        except BaseError as error:
            raise ValueError(str(error).splitlines()[0]) from None

    async def create(self, path: str, data: bytes) -> bool:
        try:
            await _called(obstore.put, self._store, path, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    async def write(self, path: str, pieces: AsyncIterable[bytes]) -> None:
        writer = obstore.open_writer(self._store, path, max_concurrency=AT_ONCE)
        async for piece in pieces:
            await _called(writer.write, piece)
        await _called(writer.close)

    async def read(self, path: str, start: int = 0, end: int | None = None) -> bytes | None:
        def read() -> bytes:
            if start == 0 and end is None:
                return bytes(obstore.get(self._store, path).bytes())
            size = obstore.head(self._store, path)["size"]
            stop = size if end is None else min(end, size)
            if stop <= start:
                return b""
            return bytes(obstore.get_range(self._store, path, start=start, end=stop))

        try:
            return await _called(read)
        except FileNotFoundError:
            return None

    async def pieces(self, path: str) -> AsyncIterator[bytes]:
        try:
            found = await _called(obstore.get, self._store, path)
        except FileNotFoundError as error:
            raise StoreUnavailable(AWAY, detail=str(error)) from error
        stream = iter(found.stream(min_chunk_size=PIECE_BYTES))
        while piece := await _called(next, stream, b""):
            yield bytes(piece)

    async def copy(self, source: str, target: str) -> bool:
        try:
            await _called(obstore.copy, self._store, source, target)
        except FileNotFoundError:
            return False
        return True

    async def below(self, folder: str) -> list[Found]:
        def found() -> list[Found]:
            pages = obstore.list(self._store, folder)
            skip = len(folder) + 1
            return sorted((each["path"][skip:], each["size"]) for page in pages for each in page)

        return await _called(found)

    async def folders(self, folder: str) -> list[str]:
        found = await _called(obstore.list_with_delimiter, self._store, folder)
        return [each.rpartition("/")[2] for each in found["common_prefixes"]]

    async def delete(self, paths: Sequence[str]) -> None:
        try:
            await _called(obstore.delete, self._store, [*paths])  # a thousand in one request
        except FileNotFoundError:  # only of `file://`; the others may be left
            for path in paths:
                with suppress(FileNotFoundError):
                    await _called(obstore.delete, self._store, path)


async def _called(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    try:
        return await asyncio.to_thread(function, *args, **kwargs)
    except (AlreadyExistsError, FileNotFoundError):
        raise
    except BaseError as error:
        raise StoreUnavailable(AWAY, detail=str(error).splitlines()[0]) from error
