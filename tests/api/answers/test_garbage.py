"""An answer leaves nothing behind that only the garbage collector can free.

It would keep prompts in memory, and look through them on the event loop.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.domain.engine import EngineRequest
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.record import RequestRecord
from proxy.domain.request import GenerationRequest
from proxy.generation.stream.engine_stream import EngineStream
from tests.doubles.engine import ScriptedEngine
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started

STOP = FinishReason.STOP
SAID = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CHAT, ANY = "/v1/chat/completions", {"type": "json_object"}
BODIES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": SAID}),
    (CHAT, {"messages": SAID, "n": 2, "logprobs": True, "stop": "d"}),
    (CHAT, {"messages": SAID, "tools": [TOOL]}),
    (CHAT, {"messages": SAID, "response_format": ANY}),
    ("/v1/completions", {"prompt": ["hi", "ho"]}),
    ("/v1/messages", {"messages": SAID, "max_tokens": 9}),
    ("/v1/responses", {"input": "hi", "store": False}),
]
KINDS = (RequestRecord, GenerationRequest, EngineRequest, EngineStream)


class CallingBack:
    """The `receive` of our own server, which needs no task to notice a disconnect."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    async def __call__(self) -> Any:
        return await self._receive()

    def on_disconnect(self, then: object) -> bool:
        return True


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("path", "fields"), BODIES)
async def test_no_cycle_of_references_keeps_a_request(path: str, fields: Any, stream: bool):
    body = {"model": "demo", "stream": stream, **fields}
    engine = ScriptedEngine([TokenDelta((b"[",), 7), TokenDelta((b"]",), finish=STOP)])

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, CallingBack(receive), send)

    app: ASGIApp = application(engine)
    async with started(app):
        await answered(served, path, body)  # the first request fills caches
        gc.disable()
        gc.freeze()  # what other tests have left is not looked at
        try:
            await answered(served, path, body)
            engine.requests.clear()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = [type(one).__name__ for one in gc.garbage if isinstance(one, KINDS)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.unfreeze()
            gc.enable()
    assert left == []


async def answered(app: ASGIApp, path: str, body: dict[str, Any]) -> None:
    call = await Call(app, path, body, {}).done()
    assert call.status == 200, call.body
