"""The port to claims and kept answers: of one proxy in memory, of several in Redis."""

from __future__ import annotations

from typing import Protocol

from typing_extensions import Self

from proxy.idempotency.answer import OpenAnswer
from proxy.idempotency.recording import Recording
from proxy.idempotency.request import KeyedRequest


class Records(Protocol):
    """Entered before the first request, left after the last.

    All methods but `release` raise RecordsUnavailable where the records cannot be used.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def claim(self, request: KeyedRequest, token: str) -> OpenAnswer | None:
        """Claims the answer for `token`: None, and the caller generates it. Else returns the answer
        that another proxy generates, or that is kept.

        Raises:
            JoinRefused: this request does not get that answer.
        """
        ...

    def published(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        """Called when the generation of a claim begins."""
        ...

    async def keep(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        """Keeps the finished answer, in place of the claim. The oldest may have to make room."""
        ...

    async def release(self, request: KeyedRequest, token: str) -> None:
        """Ends a claim, and keeps nothing. Never fails."""
        ...

    async def stored_bytes(self) -> int:
        """Removes what has expired; how many bytes are kept then."""
        ...
