"""The records of one host, in a SQLite file; workers join each other's answers over Unix sockets.

Implements port.Records. All calls of SQLite are made in one thread, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TypeVar

import structlog
from typing_extensions import Self

from triton_openai.proxy.idempotency import peers
from triton_openai.proxy.idempotency.answer import (
    Head,
    Notice,
    OpenAnswer,
    Outcome,
    RecordsUnavailable,
    check_resumption,
)
from triton_openai.proxy.idempotency.events import after_event
from triton_openai.proxy.idempotency.kept_tables import KeptTables, Page
from triton_openai.proxy.idempotency.peers import PeerServer
from triton_openai.proxy.idempotency.port import Elsewhere, Found, Kept, LocalAnswers
from triton_openai.proxy.idempotency.quotas import Quotas
from triton_openai.proxy.idempotency.recording import Recording
from triton_openai.proxy.idempotency.request import KeyedRequest

logger = structlog.get_logger(__name__)

Result = TypeVar("Result")
FILE = "idempotency.sqlite"  # prometheus_client reads every *.db of the shared folder


class FileRecords:
    """folder: of the file; None for a file without a name, which only this process has. shared:
    the folder of several workers' sockets, and of the file where `folder` is None.

    The file is opened for the first request with a key, or at the start where the folder may have
    it already: so that what has expired is removed.
    """

    def __init__(
        self,
        folder: Path | None,
        shared: Path | None,
        quotas: Quotas,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._has_own_folder = folder is not None
        folder = folder or shared
        self._file = None if folder is None else folder / FILE
        self._sockets = shared
        self._own_sockets: TemporaryDirectory[str] | None = None
        self._socket: Path | None = None
        self._quotas = quotas
        self._clock = clock
        self._tables: KeptTables | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._server: PeerServer | None = None

    async def serve(self, answers: LocalAnswers) -> None:
        if self._sockets is None and self._has_own_folder:  # other proxies may have the same file
            self._own_sockets = TemporaryDirectory(prefix="triton-openai-answers-")
            self._sockets = Path(self._own_sockets.name)
        if self._sockets is not None:
            self._socket = self._sockets / f"answers-{token_hex(6)}"
            self._server = PeerServer(self._socket, answers)
            await self._server.start()

    async def __aenter__(self) -> Self:
        if self._has_own_folder:
            with contextlib.suppress(RecordsUnavailable):  # logged; the next request tries again
                await self.stored_bytes()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._server is not None:
            await self._server.stop()
        if self._own_sockets is not None:
            self._own_sockets.cleanup()
        with contextlib.suppress(RecordsUnavailable):
            await self._call(self._close)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()

    async def claim(self, request: KeyedRequest, token: str, dead: str | None) -> Found:
        owner, now = str(self._socket or ""), self._clock()
        return await self._call(lambda: self._open().claim(request, token, owner, dead, now))

    def published(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        """The claim says already where the answer is found."""

    async def join(self, request: KeyedRequest, found: Elsewhere) -> OpenAnswer:
        return await peers.join(found.owner, request, found.token)

    def replay(self, request: KeyedRequest, found: Kept) -> OpenAnswer:
        check_resumption(request.after, found.head, found.parts)
        return KeptAnswer(request, found, self._page)

    async def keep(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        head, parts, now = recording.head, recording.kept(), self._clock()
        assert head is not None
        await self._call(lambda: self._open().keep(request, token, head, parts, now))

    async def release(self, request: KeyedRequest, token: str) -> None:
        with contextlib.suppress(RecordsUnavailable):
            await self._call(lambda: self._open().release(request, token))

    async def stored_bytes(self) -> int:
        if self._tables is None and not self._has_own_folder:
            return 0  # no request had a key yet
        while await self._call(lambda: self._open().remove_expired(self._clock())):
            pass  # in steps, between which the thread serves requests
        return await self._call(lambda: self._open().stored_bytes())

    async def _page(self, request: KeyedRequest, token: str, after: int) -> Page:
        return await self._call(lambda: self._open().page(request, token, after))

    def _open(self) -> KeptTables:
        """In the thread. The folder is made so that only its user may enter."""
        if self._tables is None:
            if self._file is not None:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._tables = KeptTables(self._file, self._quotas, is_durable=self._has_own_folder)
        return self._tables

    def _close(self) -> None:
        tables, self._tables = self._tables, None
        if tables is not None:
            tables.close()

    async def _call(self, work: Callable[[], Result]) -> Result:
        """Raises RecordsUnavailable, and what the work itself raises."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="idempotency")
        try:
            return await loop.run_in_executor(self._thread, work)
        except (sqlite3.Error, OSError) as error:
            logger.warning(
                "idempotency: the file cannot be used",
                error=str(error),
                advice="look at space and rights in IDEMPOTENCY_DIR; a damaged file can be deleted",
            )
            raise RecordsUnavailable(str(error)) from error


ReadPage = Callable[[KeyedRequest, str, int], Awaitable[Page]]


class KeptAnswer:
    """An answer.OpenAnswer that is read page by page."""

    outcome = Outcome.REPLAYED

    def __init__(self, request: KeyedRequest, found: Kept, page: ReadPage) -> None:
        self._request = request
        self._found = found
        self._page = page

    async def head(self) -> Head:
        return self._found.head

    async def parts(self) -> AsyncGenerator[bytes | Notice, None]:
        """Raises AnswerLost: it was removed while it was read. RecordsUnavailable."""
        after = self._request.after
        at = after
        while at < self._found.parts:
            page = await self._page(self._request, self._found.token, at)
            yield after_event(page.data, after) if page.first < after else page.data
            at = page.first + page.parts

    def shut_down(self) -> bool:
        return False

    async def aclose(self) -> None:
        pass
