"""Finds recent requests in all processes of this proxy, over a Unix socket of each.

Called by the routes of /admin/v1/requests. Workers that died leave a socket that nobody serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from secrets import token_hex

from typing_extensions import Self

from triton_openai.proxy.ledger import wire
from triton_openai.proxy.telemetry.recent_requests import Fields, RecentRequests, RequestFilter

SOCKET = "requests-"  # in the folder that the workers share; each adds a name of its own
ANSWER_S = 2.0


class Question(int, Enum):
    """FIND: by the id. LAST: the newest."""

    FIND = 0
    LAST = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """requests: newest first. silent: how many processes did not answer in time."""

    requests: Sequence[Fields]
    silent: int


class RequestSearch:
    """recent: of this process. shared: the folder of several processes; None for one. answer_s:
    how long another process may take to answer.
    """

    def __init__(
        self, recent: RecentRequests, shared: Path | None, *, answer_s: float = ANSWER_S
    ) -> None:
        self.recent = recent
        self._shared = shared
        self._answer_s = answer_s
        self._socket = None if shared is None else shared / f"{SOCKET}{token_hex(6)}"
        self._stack = AsyncExitStack()

    @property
    def kept_at_most(self) -> int:
        """In each process."""
        return self.recent.most

    async def __aenter__(self) -> Self:
        if self._socket is not None:
            self._stack.callback(self._socket.unlink, missing_ok=True)
            serving = wire.served(self._socket, lambda: _Asked(self.recent))
            await self._stack.enter_async_context(serving)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def find(self, request_id: str) -> Found:
        """At most one request, with its stages."""
        if (own := self.recent.find(request_id)) is not None:
            return Found(requests=(own,), silent=0)
        found, silent = await self._others((Question.FIND, request_id))
        return Found(requests=_newest(found)[:1], silent=silent)

    async def last(self, wanted: RequestFilter, limit: int) -> Found:
        """The newest of all processes, without their stages."""
        own = self.recent.last(wanted, limit)
        found, silent = await self._others((Question.LAST, asdict(wanted), limit))
        return Found(requests=_newest([*own, *found])[:limit], silent=silent)

    async def _others(self, question: Sequence[object]) -> tuple[list[Fields], int]:
        """What the other processes have found, and how many did not answer."""
        if self._shared is None:
            return [], 0
        paths = [path for path in self._shared.glob(f"{SOCKET}*") if path != self._socket]
        answers = await asyncio.gather(*(_asked(path, question, self._answer_s) for path in paths))
        found = [fields for answer in answers for fields in answer or ()]
        return found, sum(answer is None for answer in answers)


def _newest(requests: Sequence[Fields]) -> list[Fields]:
    return sorted(requests, key=lambda fields: str(fields["began_at"]), reverse=True)


async def _asked(path: Path, question: Sequence[object], within_s: float) -> wire.Message | None:
    """None: the process has not answered in time."""
    try:
        return await asyncio.wait_for(_answered(path, question), within_s)
    except (ConnectionRefusedError, FileNotFoundError):
        return []  # it has ended, and what it kept with it
    except (OSError, asyncio.TimeoutError):
        return None


async def _answered(path: Path, question: Sequence[object]) -> wire.Message:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(_Asking, str(path))
    try:
        connection.send(question)
        return await connection.answer
    finally:
        connection.close()


class _Asking(wire.Framed):
    """One question to another process."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[wire.Message] = asyncio.get_running_loop().create_future()

    def take(self, message: wire.Message) -> None:
        if not self.answer.done():
            self.answer.set_result(message)

    def end(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionResetError("the process has ended"))


class _Asked(wire.Framed):
    """Answers other processes from the requests of this one."""

    def __init__(self, recent: RecentRequests) -> None:
        super().__init__()
        self._recent = recent

    def take(self, message: wire.Message) -> None:
        match message:
            case [Question.FIND, str(request_id)]:
                found = self._recent.find(request_id)
                self.send([] if found is None else [found])
            case [Question.LAST, dict(wanted), int(limit)]:
                self.send(self._recent.last(RequestFilter(**wanted), limit))
            case _:
                raise ValueError(f"an unknown message: {message!r}")

    def end(self) -> None:
        """Nothing is held for the other process."""
