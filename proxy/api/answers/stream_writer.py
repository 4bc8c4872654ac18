"""Sends a streamed answer: the response's head, its parts, and keep-alive comments.

Used by `answer`.
"""

from __future__ import annotations

import asyncio

from starlette.types import Message, Send
from typing_extensions import Self

from proxy.api.answers.lifecycle_headers import lifecycle_headers
from proxy.api.answers.queue_headers import queue_headers
from proxy.api.answers.stream_format import StreamFormat
from proxy.domain.lifecycle import NO_END
from proxy.domain.record import RequestRecord

QUEUE_EVERY_S = 1.0


class StreamWriter:
    """Sends the head with the first part, and a comment when nothing was sent for `keep_alive_s`.

    Where the request still waits in the queue, the comment is its position; from then on each new
    position is a comment, at most one in QUEUE_EVERY_S.

    Comments are sent only between `__aenter__` and `__aexit__`, in a format that has them, and not
    while the client is slow to take an earlier part. They cost one timer for each stream, and a
    task for each comment.
    """

    def __init__(
        self, send: Send, stream_format: StreamFormat, record: RequestRecord, *, keep_alive_s: float
    ) -> None:
        self._send = send
        self._format = stream_format
        self._record = record
        self._keep_alive_s = keep_alive_s
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._head_turn = asyncio.Lock()
        self._is_head_out = self._is_sending = False
        self._timer: asyncio.TimerHandle | None = None
        self._comment: asyncio.Task[None] | None = None
        self._shown: int | None = None  # the position in the queue
        self.has_started = False

    async def __aenter__(self) -> Self:
        if self._format.comment is not None:
            self._check_in(self._keep_alive_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._comment is not None and not self._comment.done():
            self._comment.cancel()
            await asyncio.wait((self._comment,))

    async def send(self, part: bytes, *, is_last: bool = False) -> None:
        if not self._is_head_out:
            await self._send_head()
        if self._record.notes:
            part = self._taken_notes() + part
        self._is_sending = True
        await self._send(_part(part, is_last=is_last))
        self._is_sending = False
        self._sent_at = self._loop.time()

    def _taken_notes(self) -> bytes:
        """As comments, in a format that has them."""
        notes, self._record.notes = self._record.notes, []
        comment = self._format.comment
        return b"" if comment is None else b"".join(comment(note.encode()) for note in notes)

    async def _send_head(self) -> None:
        """Sends the head once, before all parts; two tasks may call it, as a comment is a part."""
        async with self._head_turn:
            if self._is_head_out:
                return
            self.has_started = True
            ours = headers_of(self._record, self._loop.time())
            headers = [
                *self._format.headers,
                *((name.encode(), value.encode()) for name, value in ours.items()),
            ]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self._is_head_out = True

    def _check_in(self, seconds: float) -> None:
        if self._position is not None:
            seconds = min(seconds, QUEUE_EVERY_S)
        self._timer = self._loop.call_later(seconds, self._check)

    def _check(self) -> None:
        left_s = self._keep_alive_s - (self._loop.time() - self._sent_at)
        if left_s > 0 and self._position in (None, self._shown):
            self._check_in(left_s)
            return
        is_unsent = self._comment is not None and not self._comment.done()
        if not self._is_sending and not is_unsent:  # a slow client would not receive another
            self._comment = self._loop.create_task(self._send_comment())
        self._check_in(self._keep_alive_s)

    @property
    def _position(self) -> int | None:
        """In the queue. None before the first comment: an error may still have its own status."""
        queued = self._record.queued
        return None if queued is None or self._comment is None else queued.position

    async def _send_comment(self) -> None:
        self._shown = position = self._position
        text = b"keep-alive" if position is None else b"queue %d" % position
        if self._format.comment is not None:
            await self.send(self._format.comment(text))


def headers_of(record: RequestRecord, now_s: float) -> dict[str, str]:
    """Our own headers of an answer, with the values that are known when its head is sent.

    now_s: the event loop's.
    """
    headers = queue_headers(record, now_s)
    if record.attempts is not None:
        headers["x-attempts"] = str(record.attempts)
    if record.resends:
        headers["x-resends"] = str(record.resends)
    if record.continued:
        headers["x-continued"] = str(record.continued)
    if record.unenforced:
        headers["x-unenforced-keywords"] = ", ".join(record.unenforced)
    if record.capped_priority is not None:  # the sign of the body's `priority`
        headers["x-priority-capped"] = str(-record.capped_priority)
    if record.fallback_from is not None:
        headers["x-fallback-from"] = record.fallback_from
    if record.lifecycle is not NO_END:
        headers.update(lifecycle_headers(record.lifecycle))
    return headers


def _part(body: bytes, *, is_last: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}
