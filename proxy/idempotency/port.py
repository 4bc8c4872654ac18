"""The port to claims and kept answers: of one proxy in memory, of several in Redis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from typing_extensions import Self

from triton_openai.proxy.idempotency.answer import Head, OpenAnswer
from triton_openai.proxy.idempotency.recording import Recording
from triton_openai.proxy.idempotency.request import KeyedRequest


@dataclass(frozen=True, slots=True)
class Mine:
    """The caller generates the answer. token: of this claim."""

    token: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another proxy has claimed it."""

    token: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The answer is complete. parts: their number."""

    head: Head
    parts: int
    token: str


Found = Mine | Elsewhere | Kept


class Records(Protocol):
    """Entered before the first request, left after the last.

    All methods but `release` raise RecordsUnavailable where the records cannot be used.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def claim(self, request: KeyedRequest, token: str, dead: str | None) -> Found:
        """Claims the answer for `token`, or finds who has it. dead: the token of a claim whose
        owner has ended: it is taken over.

        Raises:
            JoinRefused: an answer to another body is kept under this key.
        """
        ...

    def published(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        """Called when the generation of a claim begins."""
        ...

    async def join(self, request: KeyedRequest, found: Elsewhere) -> OpenAnswer:
        """
        Raises:
            JoinRefused.
            AnswerLost: the owner has ended.
        """
        ...

    def replay(self, request: KeyedRequest, found: Kept) -> OpenAnswer:
        """Raises JoinRefused."""
        ...

    async def keep(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        """Keeps the finished answer, in place of the claim. The oldest may have to make room."""
        ...

    async def release(self, request: KeyedRequest, token: str) -> None:
        """Ends a claim, and keeps nothing. Never fails: a claim whose owner lacks it is taken
        over by the next caller.
        """
        ...

    async def stored_bytes(self) -> int:
        """Removes what has expired; how many bytes are kept then."""
        ...
