"""A generation as an HTTP answer: what a protocol hands over, and the two answers: streamed, or as
one body that is the fold of its events.

Both live exactly as long as their client: when it disconnects, the events are closed, and with them
the engine's work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy.api import errors
from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.api.http.own_headers import headers_of
from proxy.api.http.stream_format import Part, Payload, StreamFormat
from proxy.domain.completion import Completion, Fold
from proxy.domain.events import Finished, OutputEvent
from proxy.domain.model import ModelCard
from proxy.domain.request import Delivery, GenerationRequest
from proxy.generation.service import Generation, Service


class Renderer(Protocol):
    """One protocol's words for events. Payloads are JSON objects."""

    def chunks(self, event: OutputEvent) -> Sequence[Part]: ...

    def kept(self, event: OutputEvent) -> OutputEvent:
        """The event as it is kept for `full`: what is large is rendered as it comes."""

    def full(self, completion: Completion) -> Payload:
        """The fold of all events that `kept` returned."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """`card`: of the model that the request names, looked up once."""

    request: GenerationRequest
    card: ModelCard
    renderer: Renderer


AtEnd = Callable[[Finished], Awaitable[None]]


class Answers:
    """Makes the answer to a request. All routes share one."""

    def __init__(self, service: Service, *, keep_alive_s: float) -> None:
        self._service = service
        self._keep_alive_s = keep_alive_s

    def answer(
        self,
        exchange: Exchange,
        framing: StreamFormat | None = None,
        at_end: AtEnd | None = None,
    ) -> Response:
        """framing: of a stream; None for the whole answer in one piece. at_end: called before a
        Finished is rendered.
        """
        delivery = Delivery.HELD if framing is None else Delivery.LIVE
        generation = self._service.generate(exchange.request, exchange.card, delivery)
        if framing is None:
            return WholeAnswer(generation, exchange.renderer, at_end)
        return StreamedAnswer(
            generation, exchange.renderer, framing, at_end, keep_alive_s=self._keep_alive_s
        )


class WholeAnswer(Response):
    """One JSON body, sent when the generation has finished."""

    def __init__(
        self, generation: Generation, renderer: Renderer, at_end: AtEnd | None = None
    ) -> None:
        super().__init__()
        self._generation = generation
        self._renderer = renderer
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        folded, renderer = Fold(), self._renderer
        completion = None
        async with CancelOnDisconnect(receive), aclosing(self._generation.events) as events:
            async for event in events:
                folded.add(renderer.kept(event))
                if self._at_end is not None and isinstance(event, Finished):
                    await self._at_end(event)
            completion = folded.completion()
        if completion is not None:
            headers = headers_of(self._generation.record, asyncio.get_running_loop().time())
            body = orjson.dumps(renderer.full(completion))
            response = Response(body, headers=headers, media_type="application/json")
            await response(scope, receive, send)


QUEUE_EVERY_S = 1.0


class StreamedAnswer(Response):
    """The status is sent with the first event, so an error before it has its own status.

    Where nothing was sent for `keep_alive_s`, a comment is, in a format that has them, and with it
    the status: an error after that is a part of the stream, which then ends. Where the request
    still waits in the queue, the comment is its position; from then on each new position is a
    comment, at most one in QUEUE_EVERY_S. No comment is sent while the client is slow to take an
    earlier part. They cost one timer for each stream, and a task for each comment.
    """

    def __init__(
        self,
        generation: Generation,
        renderer: Renderer,
        framing: StreamFormat,
        at_end: AtEnd | None = None,
        *,
        keep_alive_s: float,
    ) -> None:
        # Response.__init__ would render a body, and headers that are not sent
        self.background = None
        self._events = generation.events
        self._record = generation.record
        self._renderer = renderer
        self._format = framing
        self._at_end = at_end
        self._keep_alive_s = keep_alive_s
        self._head_turn = asyncio.Lock()
        self._has_started = self._is_head_out = self._is_sending = False
        self._timer: asyncio.TimerHandle | None = None
        self._comment: asyncio.Task[None] | None = None
        self._shown: int | None = None  # the position in the queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        encode = self._format.encode
        try:
            async with CancelOnDisconnect(receive), aclosing(self._events) as events:
                if self._format.has_comments:
                    self._timer = self._loop.call_later(self._keep_alive_s, self._check)
                try:
                    async for event in events:
                        if self._at_end is not None and isinstance(event, Finished):
                            await self._at_end(event)
                        await self._put(b"".join(map(encode, self._renderer.chunks(event))))
                    await self._put(self._format.end, is_last=True)
                finally:
                    await self._end_comments()
        except Exception as error:
            if not self._has_started:
                raise
            self._record.has_failed = True
            body = errors.body_of(error)  # the status is sent, so the error must be a part
            await self._put(self._format.error(body) + self._format.end, is_last=True)

    async def _end_comments(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._comment is not None and not self._comment.done():
            self._comment.cancel()
            await asyncio.wait((self._comment,))

    async def _put(self, part: bytes, *, is_last: bool = False) -> None:
        if not self._is_head_out:
            await self._send_head()
        if self._record.notes:
            notes, self._record.notes = self._record.notes, []
            if self._format.has_comments:
                part = b"".join(self._format.comment(each.encode()) for each in notes) + part
        self._is_sending = True
        await self._send({"type": "http.response.body", "body": part, "more_body": not is_last})
        self._is_sending = False
        self._sent_at = self._loop.time()

    async def _send_head(self) -> None:
        """Sends the head once, before all parts; two tasks may call it, as a comment is a part."""
        async with self._head_turn:
            if self._is_head_out:
                return
            self._has_started = True
            headers = [*self._format.headers]
            for name, value in headers_of(self._record, self._loop.time()).items():
                headers.append((name.encode(), value.encode()))
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self._is_head_out = True

    def _check(self) -> None:
        next_s = self._keep_alive_s - (self._loop.time() - self._sent_at)
        if next_s <= 0 or self._position not in (None, self._shown):
            is_unsent = self._comment is not None and not self._comment.done()
            if not self._is_sending and not is_unsent:  # a slow client would not receive another
                self._comment = self._loop.create_task(self._send_comment())
            next_s = self._keep_alive_s
        if self._position is not None:
            next_s = min(next_s, QUEUE_EVERY_S)
        self._timer = self._loop.call_later(next_s, self._check)

    @property
    def _position(self) -> int | None:
        """In the queue. None before the first comment: an error may still have its own status."""
        queued = self._record.queued
        return None if queued is None or self._comment is None else queued.position

    async def _send_comment(self) -> None:
        self._shown = position = self._position
        queue = None if position is None else self._format.comment(b"queue %d" % position)
        await self._put(queue or self._format.keep_alive)
