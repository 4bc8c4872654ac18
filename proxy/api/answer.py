"""A generation as an HTTP answer: streamed event by event, or whole as the fold of the same events.

Both live exactly as long as their client: when it leaves, the events are closed, and with them the
engine's work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Protocol

from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from proxy.api import errors, sse
from proxy.domain.errors import ProxyError, ShuttingDown
from proxy.domain.output import Completion, Events, OutputEvent, fold

Payload = dict[str, Any]


class Renderer(Protocol):
    """One protocol's words for events. Payloads are JSON objects."""

    @property
    def field_names(self) -> Mapping[str, str]:
        """Fields whose name in this protocol is not the domain's, for errors."""

    def chunks(self, event: OutputEvent) -> list[Payload]: ...

    def full(self, completion: Completion) -> Payload: ...


class WholeAnswer(Response):
    """One JSON body, when everything is there."""

    def __init__(self, events: Events, renderer: Renderer) -> None:
        super().__init__()
        self._events = events
        self._renderer = renderer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with _in_words_of(self._renderer):
            completion = await _while_connected(receive, _folded(self._events))
        if completion is not None:
            await JSONResponse(self._renderer.full(completion))(scope, receive, send)


class StreamedAnswer(Response):
    """Server-sent events. The status is sent with the first event, so an early error keeps its own.

    An error after that is an event, and `[DONE]` follows.
    """

    def __init__(self, events: Events, renderer: Renderer) -> None:
        super().__init__()
        self._events = events
        self._renderer = renderer
        self._has_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with _in_words_of(self._renderer):
            try:
                await _while_connected(receive, self._stream(send))
            except ShuttingDown as error:
                if not self._has_started:
                    raise
                await self._end_with(error, send)

    async def _stream(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            first = await anext(events)
            self._has_started = True
            await send({"type": "http.response.start", "status": 200, "headers": sse.HEADERS})
            await send(_part(self._rendered(first)))
            try:
                async for event in events:
                    await send(_part(self._rendered(event)))
            except Exception as error:  # the status is out: all that is left is an event
                await self._end_with(error, send)
                return
        await send(_part(sse.DONE, is_last=True))

    async def _end_with(self, error: Exception, send: Send) -> None:
        await send(_part(sse.event(errors.body_of(error)) + sse.DONE, is_last=True))

    def _rendered(self, event: OutputEvent) -> bytes:
        return b"".join(map(sse.event, self._renderer.chunks(event)))


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
def _in_words_of(renderer: Renderer) -> Iterator[None]:
    """An error's `param` becomes the name that the caller gave the field."""
    try:
        yield
    except ProxyError as error:
        if error.param is not None:
            error.param = renderer.field_names.get(error.param, error.param)
        raise


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _part(body: bytes, *, is_last: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}
