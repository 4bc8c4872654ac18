"""disconnects: a client that only stops sending is answered; one that left is noticed at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from proxy.api.http.client_disconnect import CancelOnDisconnect
from tests.fixtures.own_server import served
from tests.fixtures.stack import HANG_S
from tests.unit.server.talks import GET

ANSWER_S = 0.3


class App:
    """Answers after a while, unless its client leaves."""

    has_lost_its_client = False

    async def __call__(self, scope, receive, send) -> None:
        await receive()
        leaving = asyncio.ensure_future(receive())
        done, _ = await asyncio.wait({leaving}, timeout=ANSWER_S)
        self.has_lost_its_client |= bool(done)
        leaving.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})


async def asked(
    request: bytes, app: Any, *, leaves: bool = False, pause_s: float = ANSWER_S / 6
) -> bytes:
    """What comes to a client that closes its sending side, or all."""
    async with served(app) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request)
        await asyncio.sleep(pause_s)
        try:
            if leaves:
                writer.close()
                await asyncio.sleep(ANSWER_S / 3)
                return b""
            writer.write_eof()
            return await asyncio.wait_for(reader.read(), HANG_S)
        finally:
            writer.close()


@pytest.mark.parametrize("more", [b"", GET], ids=["one", "pipelined"])
def test_who_only_stops_sending_is_answered_and_the_connection_closed(more):
    raw = uvloop.run(asked(GET + more, App()))
    *interim, last = raw.split(b"HTTP/1.1 ")[1:]
    assert interim[-1] == b"100 Continue\r\n\r\n"
    assert last.startswith(b"200 OK")
    assert b"connection: close" in last
    assert b"answer" in last
    assert raw.count(b"answer") == raw.count(b" 200 OK") == 1 + bool(more)


@pytest.mark.parametrize("more", [b"", GET], ids=["one", "pipelined"])
def test_who_leaves_is_noticed_before_the_answer(more):
    app = App()
    uvloop.run(asked(GET + more, app, leaves=True))
    assert app.has_lost_its_client


def test_the_work_for_a_client_that_leaves_is_cancelled_once():
    left = []

    async def app(scope, receive, send) -> None:
        await receive()
        async with CancelOnDisconnect(receive):
            await asyncio.sleep(HANG_S)
        task = asyncio.current_task()
        left.append(task.cancelling() if hasattr(task, "cancelling") else 0)

    uvloop.run(asked(GET, app, leaves=True))
    assert left == [0]


OLD = GET.replace(b"1.1", b"1.0")


def test_an_older_client_that_only_stops_sending_is_answered_without_interim_responses():
    raw = uvloop.run(asked(OLD, App()))
    assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
    assert raw.endswith(b"\r\n\r\nanswer")
    assert raw.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("pause_s", [0, 0.01, 0.06, 0.25])
def test_however_much_of_its_beginning_was_sent_an_answer_is_whole(pause_s):
    async def app(scope, receive, send) -> None:
        await receive()
        await asyncio.sleep(pause_s)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"HTTP/1.1 is text here"})

    raw = uvloop.run(asked(OLD, app, pause_s=0))
    assert raw.startswith(b"HTTP/1.1 200 OK\r\ndate: ")
    assert raw.endswith(b"\r\n\r\nHTTP/1.1 is text here")
    assert raw.count(b"HTTP") == 2


async def streaming(scope, receive, send) -> None:
    await receive()
    await asyncio.sleep(ANSWER_S)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in (b"one", b"two"):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def test_an_older_client_that_only_stops_sending_has_its_stream_to_the_end():
    assert uvloop.run(asked(OLD, streaming)).endswith(b"\r\n\r\nonetwo")
