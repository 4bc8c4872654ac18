"""A generation as an HTTP answer: streamed event by event, or whole as the fold of the same events.

Both live exactly as long as their client: when it leaves, the events are closed, and with them the
engine's work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Protocol

from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from proxy.api import errors
from proxy.api.framing import Framing, Part, Payload
from proxy.domain.completion import Completion, fold
from proxy.domain.delivery import Delivery
from proxy.domain.errors import ProxyError, ShuttingDown
from proxy.domain.events import Events, OutputEvent
from proxy.domain.request import GenerationRequest
from proxy.service import Service


class Renderer(Protocol):
    """One protocol's words for events. Payloads are JSON objects."""

    @property
    def field_names(self) -> Mapping[str, str]:
        """Fields whose name in this protocol is not the domain's, for errors."""

    def chunks(self, event: OutputEvent) -> Sequence[Part]: ...

    def full(self, completion: Completion) -> Payload: ...


class Answers:
    """Makes the answer to a request; the routes have one."""

    def __init__(self, service: Service, *, keep_alive_s: float) -> None:
        self._service = service
        self._keep_alive_s = keep_alive_s

    def whole(self, request: GenerationRequest, renderer: Renderer) -> Response:
        delivery = Delivery()
        return WholeAnswer(self._service.generate(request, delivery), renderer, delivery)

    def streamed(
        self, request: GenerationRequest, renderer: Renderer, framing: Framing
    ) -> Response:
        delivery = Delivery(is_live=True)
        events = self._service.generate(request, delivery)
        return StreamedAnswer(events, renderer, framing, delivery, keep_alive_s=self._keep_alive_s)


class WholeAnswer(Response):
    """One JSON body, when everything is there."""

    def __init__(self, events: Events, renderer: Renderer, delivery: Delivery) -> None:
        super().__init__()
        self._events = events
        self._renderer = renderer
        self._delivery = delivery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with in_words(self._renderer.field_names):
            completion = await _while_connected(receive, _folded(self._events))
        if completion is not None:
            body, headers = self._renderer.full(completion), headers_of(self._delivery)
            await JSONResponse(body, headers=headers)(scope, receive, send)


class StreamedAnswer(Response):
    """The status is sent with the first event, so an error before it keeps its own.

    Where nothing comes for `keep_alive_s`, it is sent with a sign of life. An error after that is
    a part of the stream, which then ends.
    """

    def __init__(
        self,
        events: Events,
        renderer: Renderer,
        framing: Framing,
        delivery: Delivery,
        *,
        keep_alive_s: float,
    ) -> None:
        super().__init__()
        self._events = events
        self._renderer = renderer
        self._framing = framing
        self._delivery = delivery
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        out = _Outgoing(send, self._framing, self._delivery)
        try:
            with in_words(self._renderer.field_names):
                async with out.kept_alive(self._keep_alive_s):
                    await _while_connected(receive, self._stream(out))
        except Exception as error:
            if not out.has_started:
                raise
            body = errors.body_of(error)  # the status is out: all that is left is a part
            await out.send(self._framing.error(body) + self._framing.end, is_last=True)

    async def _stream(self, out: _Outgoing) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                parts = self._renderer.chunks(event)
                await out.send(b"".join(map(self._framing.part, parts)))
        await out.send(self._framing.end, is_last=True)


class _Outgoing:
    """The sending half of a stream: its head goes out with the first part."""

    def __init__(self, send: Send, framing: Framing, delivery: Delivery) -> None:
        self._send = send
        self._framing = framing
        self._delivery = delivery
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._head_turn = asyncio.Lock()
        self._is_head_out = self._is_sending = False
        self.has_started = False

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
            told = headers_of(self._delivery)
            headers = [
                *self._framing.headers,
                *((name.encode(), value.encode()) for name, value in told.items()),
            ]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            self._is_head_out = True

    @asynccontextmanager
    async def kept_alive(self, every_s: float) -> AsyncIterator[None]:
        """Meanwhile no silence lasts longer, in a format that has words for it."""
        if self._framing.comment is None:
            yield
            return
        comment = self._framing.comment(b"keep-alive")
        task = asyncio.ensure_future(self._keep_alive(comment, every_s))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))

    async def _keep_alive(self, comment: bytes, every_s: float) -> None:
        while True:
            silent_s = self._loop.time() - self._sent_at
            if silent_s < every_s:
                await asyncio.sleep(every_s - silent_s)
            elif self._is_sending:  # to a client that does not read; this would not reach it
                await asyncio.sleep(every_s)
            else:
                await self.send(comment)


def headers_of(delivery: Delivery) -> dict[str, str]:
    """What is known when the first byte goes out."""
    told = {}
    if delivery.attempts is not None:
        told["x-attempts"] = str(delivery.attempts)
    if delivery.unenforced:
        told["x-unenforced-keywords"] = ", ".join(delivery.unenforced)
    return told


async def _folded(events: Events) -> Completion:
    async with aclosing(events):
        return fold([event async for event in events])


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`, or None after cancelling it because the client left.

    Raises:
        ShuttingDown: the server cancels what has outlasted the drain.
    """
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_client_leaves(receive))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    except asyncio.CancelledError:
        raise ShuttingDown("The server is shutting down.") from None
    finally:
        leaving.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


@contextmanager
def in_words(field_names: Mapping[str, str]) -> Iterator[None]:
    """An error's `param` becomes the name that the caller gave the field."""
    try:
        yield
    except ProxyError as error:
        if error.param is not None:
            error.param = field_names.get(error.param, error.param)
        raise


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _part(body: bytes, *, is_last: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}
