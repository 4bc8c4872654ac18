"""draining: whoever has connected when a server stops is answered; a second signal hurries it."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvicorn
import uvloop

from proxy.operate.triton_server.ports import bind
from proxy.server import http_connection
from proxy.server.stop import Stop
from proxy.server.uvicorn_server import DrainingServer, relay, serve
from tests.fixtures.own_server import bounds
from tests.fixtures.stack import HANG_S
from tests.unit.server.talks import GET

CALLERS = 100


async def answer(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class StopsAtOnce(DrainingServer):
    """Its callers connect while the event loop has no turn, and then it stops."""

    callers: list[socket.socket]

    async def on_tick(self, counter: int) -> bool:
        address = self.servers[0].sockets[0].getsockname()
        self.callers = [socket.create_connection(address) for _ in range(CALLERS)]
        for caller in self.callers:
            caller.sendall(GET)
        return True


def test_who_waits_in_the_queue_of_connections_is_answered():
    protocol = http_connection.bound(bounds(most=2 * CALLERS), asyncio.Event())
    config = uvicorn.Config(answer, http=protocol, ws="none", lifespan="off", log_config=None)
    server, sock = StopsAtOnce(config), bind("127.0.0.1", 0, "PORT")
    uvloop.run(server.serve(sockets=[sock, sock.dup()]))
    answers = []
    for caller in server.callers:
        with caller:
            answers.append(caller.recv(4096))
    assert [one.partition(b"\r\n")[0] for one in answers] == [b"HTTP/1.1 204 No Content"] * CALLERS


class SlowApp:
    """Answers when `go` is set."""

    def __init__(self) -> None:
        self.is_asked, self.go, self.has_ended = asyncio.Event(), asyncio.Event(), False

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.has_ended = True
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.is_asked.set()
        await self.go.wait()
        await answer(scope, receive, send)


@pytest.mark.parametrize("is_hurried", [False, True])
def test_a_running_answer_ends_or_is_given_up_and_idle_connections_are_closed(is_hurried):
    async def talk() -> tuple[bytes, bytes]:
        stop, app, stopping = Stop(), SlowApp(), asyncio.Event()
        protocol = http_connection.bound(bounds(), stopping)
        server = DrainingServer(uvicorn.Config(app, http=protocol, ws="none", log_config=None))
        sock = bind("127.0.0.1", 0, "PORT")
        sock.listen()
        serving = asyncio.create_task(serve(server, sock))
        relaying = asyncio.create_task(relay(stop, server, stopping, lambda _: None, serving))
        idle, other = await asyncio.open_connection(*sock.getsockname())
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        writer.write(GET)
        await app.is_asked.wait()
        stop.on_signal()
        assert await idle.read() == b""
        if is_hurried:
            stop.on_signal()
        else:
            app.go.set()
        raw = await reader.read()
        await serving
        relaying.cancel()
        assert app.has_ended
        writer.close()
        other.close()
        return raw

    raw = uvloop.run(asyncio.wait_for(talk(), HANG_S))
    assert raw.startswith(b"HTTP/1.1 503 " if is_hurried else b"HTTP/1.1 204 ")
    assert b"connection: close" in raw
