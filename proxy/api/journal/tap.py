"""Keeps the bytes of one request and its answer while they pass, within bounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from time import perf_counter

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triton_openai.proxy.domain.errors import ProxyError
from triton_openai.proxy.journal.journal import Outcome

OVERHEAD = 2_000  # bytes of a record in memory, besides those of request and answer
# Routes whose callers can refuse with `store: false`. The WebSocket is not tapped.
PATHS = frozenset(("/v1/chat/completions", "/v1/completions"))


def is_tapped(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["path"] in PATHS and scope["method"] == "POST"


class Tap:
    """hold: whether so many bytes more may be kept. lost: why something is missing in them."""

    def __init__(self, most: int, hold: Callable[[int], bool]) -> None:
        self._most = most
        self._hold = hold
        self._body: list[bytes] = []
        self._answer: list[bytes] = []
        self._began = perf_counter()
        self.at = datetime.now(timezone.utc)
        self.held = 0
        self.status: int | None = None
        self.first_byte_s: float | None = None
        self.is_complete = False
        self.lost: Outcome | None = None
        self._hold_more(OVERHEAD)

    @property
    def body(self) -> bytes:
        return b"".join(self._body)

    @property
    def answer(self) -> bytes:
        return b"".join(self._answer)

    @property
    def duration_s(self) -> float:
        return perf_counter() - self._began

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, for one request."""
        try:
            await app(scope, self._receiving(receive), self._sending(send))
        except ProxyError as error:
            self._refused(error)
            raise

    def _receiving(self, receive: Receive) -> Receive:
        async def tapped() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                self._keep(self._body, message.get("body", b""))
            return message

        return tapped

    def _sending(self, send: Send) -> Send:
        async def tapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            elif message["type"] == "http.response.body":
                self._sent(message.get("body", b""))
                self.is_complete = not message.get("more_body", False)
            await send(message)

        return tapped

    def _refused(self, error: ProxyError) -> None:
        """Notes a refusal, whose body an outer layer writes. Its message may name the caller's."""
        if self.status is None:
            self.status, self.is_complete = error.code.status, True
            self._sent(orjson.dumps({"error": {"code": error.code.value}}))

    def _sent(self, data: bytes) -> None:
        if data and self.first_byte_s is None:
            self.first_byte_s = self.duration_s
        self._keep(self._answer, data)

    def _keep(self, parts: list[bytes], data: bytes) -> None:
        if self.lost is None and self._hold_more(len(data)):
            parts.append(bytes(data))

    def _hold_more(self, size: int) -> bool:
        if self.held + size > self._most:
            self.lost = Outcome.TOO_LARGE
        elif not self._hold(size):
            self.lost = Outcome.OVERLOADED
        else:
            self.held += size
        return self.lost is None
