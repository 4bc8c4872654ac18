"""The sending half of a streamed answer: head, parts, signs of life."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Send
from typing_extensions import Self

from triton_openai.proxy.api.answers.framing import Framing
from triton_openai.proxy.domain.generation import Report


class Outgoing:
    """The head goes out with the first part.

    While it is entered no silence lasts longer than `keep_alive_s`, in a format that has words for
    a sign of life. That takes one timer a stream; a task is made only when there is one to send.
    """

    def __init__(
        self, send: Send, framing: Framing, report: Report, *, keep_alive_s: float
    ) -> None:
        self._send = send
        self._framing = framing
        self._report = report
        self._keep_alive_s = keep_alive_s
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._head_turn = asyncio.Lock()
        self._is_head_out = self._is_sending = False
        self._timer: asyncio.TimerHandle | None = None
        self._sign: asyncio.Task[None] | None = None
        self.has_started = False

    async def __aenter__(self) -> Self:
        if self._framing.comment is not None:
            self._look_in(self._keep_alive_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._sign is not None and not self._sign.done():
            self._sign.cancel()
            await asyncio.wait((self._sign,))

    async def send(self, part: bytes, *, is_last: bool = False) -> None:
        if not self._is_head_out:
            await self._send_head()
        self._is_sending = True
        await self._send(_part(part, is_last=is_last))
        self._is_sending = False
        self._sent_at = self._loop.time()

    async def _send_head(self) -> None:
        """Once, and before all parts: a sign of life may be the first of them."""
        async with self._head_turn:
            if self._is_head_out:
                return
            self.has_started = True
            of_report = headers_of(self._report).items()
            headers = [
                *self._framing.headers,
                *((name.encode(), value.encode()) for name, value in of_report),
            ]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self._is_head_out = True

    def _look_in(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        silent_s = self._loop.time() - self._sent_at
        if silent_s < self._keep_alive_s:
            self._look_in(self._keep_alive_s - silent_s)
            return
        is_unsent = self._sign is not None and not self._sign.done()
        if not self._is_sending and not is_unsent:  # else it would not reach a client that is slow
            self._sign = self._loop.create_task(self._send_sign())
        self._look_in(self._keep_alive_s)

    async def _send_sign(self) -> None:
        if self._framing.comment is not None:
            await self.send(self._framing.comment(b"keep-alive"))


def headers_of(report: Report) -> dict[str, str]:
    """What is known when the first byte goes out."""
    headers = {}
    if report.attempts is not None:
        headers["x-attempts"] = str(report.attempts)
    if report.unenforced:
        headers["x-unenforced-keywords"] = ", ".join(report.unenforced)
    return headers


def _part(body: bytes, *, is_last: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}
