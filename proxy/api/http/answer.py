"""Sends a generation as an HTTP answer: streamed, or as one body that is the fold of its events.

Both live exactly as long as their client: when it disconnects, the events are closed, and with them
the engine's work.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import Self

from proxy.api import errors
from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.api.http.exchange import Exchange, ProtocolNames, Renderer, StreamFormat
from proxy.api.http.generation_headers import headers_of
from proxy.domain.completion import Completion, Fold
from proxy.domain.events import Events
from proxy.domain.record import RequestRecord
from proxy.domain.request import Delivery
from proxy.generation.service import Generation, Service


class Answers:
    """Makes the answer to a request. All routes share one."""

    def __init__(self, service: Service, *, keep_alive_s: float) -> None:
        self._service = service
        self._keep_alive_s = keep_alive_s

    def whole(self, exchange: Exchange) -> Response:
        generation = self._service.generate(exchange.request, exchange.card, Delivery.HELD)
        return WholeAnswer(generation, exchange.renderer)

    def streamed(self, exchange: Exchange, framing: StreamFormat) -> Response:
        generation = self._service.generate(exchange.request, exchange.card, Delivery.LIVE)
        return StreamedAnswer(
            generation, exchange.renderer, framing, keep_alive_s=self._keep_alive_s
        )


class WholeAnswer(Response):
    """One JSON body, sent when the generation has finished."""

    def __init__(self, generation: Generation, renderer: Renderer) -> None:
        super().__init__()
        self._generation = generation
        self._renderer = renderer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        completion = None
        with ProtocolNames(self._renderer.field_names):
            async with CancelOnDisconnect(receive), aclosing(self._generation.events) as events:
                completion = await self._folded(events)
        if completion is not None:
            now_s = asyncio.get_running_loop().time()
            headers = headers_of(self._generation.record, now_s)
            body = self._renderer.full(completion)
            response = Response(orjson.dumps(body), headers=headers, media_type="application/json")
            await response(scope, receive, send)

    async def _folded(self, events: Events) -> Completion:
        folded = Fold()
        async for event in events:
            folded.add(self._renderer.kept(event))
        return folded.completion()


class StreamedAnswer(Response):
    """The status is sent with the first event, so an error before it has its own status.

    Where nothing comes for `keep_alive_s`, the status is sent with a sign of life. An error after
    that is a part of the stream, which then ends.
    """

    def __init__(
        self,
        generation: Generation,
        renderer: Renderer,
        framing: StreamFormat,
        *,
        keep_alive_s: float,
    ) -> None:
        super().__init__()
        self._generation = generation
        self._renderer = renderer
        self._framing = framing
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = self._generation.record
        out = StreamWriter(send, self._framing, record, keep_alive_s=self._keep_alive_s)
        try:
            with ProtocolNames(self._renderer.field_names):
                async with (
                    out,
                    CancelOnDisconnect(receive),
                    aclosing(self._generation.events) as events,
                ):
                    async for event in events:
                        parts = self._renderer.chunks(event)
                        await out.send(b"".join(map(self._framing.encode, parts)))
                    await out.send(self._framing.end, is_last=True)
        except Exception as error:
            if not out.has_started:
                raise
            record.has_failed = True
            body = errors.body_of(error)  # the status is sent, so the error must be a part
            await out.send(self._framing.error(body) + self._framing.end, is_last=True)


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
        await self._send({"type": "http.response.body", "body": part, "more_body": not is_last})
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
