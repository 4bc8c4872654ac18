"""A client that leaves while the server runs a tool for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from proxy.app import compose
from proxy.settings import Settings
from tests.api.test_server_tools import call, rounds
from tests.api.test_tools import CATALOG, CHAT, HI
from tests.doubles.sandbox import InProcess
from tests.doubles.tokenizer import ByteTokenizer
from tests.fixtures.stack import HANG_S


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_a_tool_runs_ends_the_tools_call(policy, server, stream):
    engine = rounds(call("slow"), "never")
    app = compose(Settings(models_file=policy()), engine, CATALOG, ByteTokenizer(), InProcess())

    async def leave() -> None:
        body = {"model": "demo", "messages": HI, "stream": stream}
        gone = asyncio.Event()
        given = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

        async def receive() -> dict[str, Any]:
            if given:
                return given.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            pass

        async with app.router.lifespan_context(app):
            await asyncio.wait_for(ready(app), 5)
            answering = asyncio.ensure_future(app(scope(), receive, send))
            assert await asyncio.to_thread(server.asked.wait, 5)
            gone.set()
            await asyncio.wait_for(answering, HANG_S)

    asyncio.run(leave())
    assert server.left.wait(HANG_S)
    assert len(engine.requests) == 1


async def ready(app) -> None:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        for wait_s in (0.0, 0.01, 0.1, 1.0):
            await asyncio.sleep(wait_s)
            if (await client.get("/health/ready")).status_code == 200:
                return


def scope() -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": CHAT,
        "raw_path": CHAT.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"x")],
        "client": ("127.0.0.1", 1),
        "server": ("x", 80),
    }
