"""A token costs the proxy no more CPU in another protocol than in a streamed chat, as a ratio."""

from __future__ import annotations

import asyncio
import json
import time

from proxy.domain.output import FinishReason, TokenDelta
from tests.doubles.engine import ScriptedEngine
from tests.fixtures.application import application

TOKENS, ROUNDS, MORE_ROUNDS = 400, 25, 150
ASKED = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 20}
BODIES = {
    "/v1/chat/completions": {**ASKED, "stream": True, "stream_options": {"include_usage": True}},
    "/v1/messages": {**ASKED, "stream": True},
    "/v1/responses": {"model": "demo", "input": "hi", "max_output_tokens": 20, "stream": True},
}
MOST = 1.1


async def cpu_s(app, path: str) -> float:
    """Of one answer."""
    received = iter([{"type": "http.request", "body": json.dumps(BODIES[path]).encode()}])

    async def receive():
        for message in received:
            return message
        return await asyncio.Event().wait()

    async def send(message):
        pass

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    began = time.process_time()
    await app({**scope, "headers": headers}, receive, send)
    return time.process_time() - began


async def ratios() -> dict[str, float]:
    """To a chat's. The protocols take turns; the least time has the least noise, and a busy machine
    needs more rounds for it.
    """
    first = TokenDelta((b" word",), prompt_tokens=7)
    tokens = [TokenDelta((b" word",)) for _ in range(TOKENS)]
    app = application(
        ScriptedEngine([first, *tokens, TokenDelta((b"",), finish=FinishReason.STOP)])
    )
    found = {path: float("inf") for path in BODIES}
    async with app.router.lifespan_context(app):
        for done in range(ROUNDS + MORE_ROUNDS):
            for path in BODIES:
                found[path] = min(found[path], await cpu_s(app, path))
            chat, *others = found.values()
            if done >= ROUNDS and max(others) < MOST * chat:
                break
    return {path: cost / chat for path, cost in found.items()}


def test_a_token_of_any_protocol_costs_what_one_of_a_chat_does():
    found = asyncio.run(ratios())
    assert max(found.values()) < MOST, found
