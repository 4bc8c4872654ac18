"""draining: whoever has connected when a server stops is answered, however many they are."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
import uvloop

from tests.fixtures.own_server import bounds
from triton_openai.proxy.launch.triton_server.ports import bind
from triton_openai.proxy.server import http_connection
from triton_openai.proxy.server.uvicorn_server import DrainingServer

CALLERS = 100
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


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
