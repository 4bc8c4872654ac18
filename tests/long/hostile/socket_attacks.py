"""The WebSockets: floods, fragments, empty frames."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.long.hostile.attack import ANY, CLOSED, SILENT, Attack, Reply, Target
from tests.long.hostile.caller import SOCKET, connected, status_of
from tests.long.hostile.structured_attacks import chat

SWITCHED = 101
OPEN = ANY | {SWITCHED, CLOSED, SILENT, 503}
CONTINUATION, TEXT, PING, PONG = 0x0, 0x1, 0x9, 0xA
LAST = b"the last"


def frame(kind: int, data: bytes = b"", *, is_final: bool = True) -> bytes:
    """A client's frame; its mask is zero, which changes nothing."""
    first = bytes([(0x80 if is_final else 0) | kind])
    if len(data) < 126:
        size = bytes([0x80 | len(data)])
    elif len(data) < 65_536:
        size = b"\xfe" + len(data).to_bytes(2, "big")
    else:
        size = b"\xff" + len(data).to_bytes(8, "big")
    return first + size + b"\0\0\0\0" + data


@contextlib.contextmanager
def socket_of(
    target: Target, path: str = SOCKET, **headers: str
) -> Iterator[tuple[socket.socket, Reply]]:
    """A connection after its handshake, and the answer to that."""
    fields = {
        "Host": f"{target.host}:{target.port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    sock = connected(target)
    try:
        sock.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        data = b""
        with contextlib.suppress(OSError):
            data = sock.recv(65_536)
        yield sock, Reply(status=status_of(data), body=data)
    finally:
        sock.close()


def _flood(target: Target, data: bytes, within_s: float, path: str) -> Reply:
    """Sends all and reads until the pong of a last ping, or the end."""
    began = time.monotonic()
    with socket_of(target, path) as (sock, reply):
        sock.setblocking(False)
        unsent, received = memoryview(data + frame(PING, LAST)), b""
        while LAST not in received and time.monotonic() < began + within_s:
            try:
                unsent = unsent[sock.send(unsent[:65_536]) :]
            except BlockingIOError:
                time.sleep(0.002)
            except OSError:
                break
            with contextlib.suppress(BlockingIOError):
                try:
                    part = sock.recv(262_144)
                except ConnectionError:
                    break
                if not part:
                    break
                received = received[-20:] + part
    return Reply(status=reply.status, body=reply.body, wall_s=time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class Flood:
    """Sends all of it through one socket."""

    data: bytes
    within_s: float
    route: str

    def __call__(self, target: Target) -> list[Reply]:
        return [_flood(target, self.data, self.within_s, self.route)]


def flood(data: bytes, *, within_s: float = 10, path: str = SOCKET) -> Flood:
    return Flood(data, within_s, path)


def many_requests(target: Target) -> list[Reply]:
    """40 sockets with 8 requests of 16 choices each."""
    with contextlib.ExitStack() as ends:
        pairs = [ends.enter_context(socket_of(target)) for _ in range(40)]
        for sock, _ in pairs:
            for number in range(8):
                body = {**chat(n=16, max_tokens=100)(target), "request_id": f"r{number}"}
                with contextlib.suppress(OSError):
                    sock.sendall(frame(TEXT, json.dumps(body).encode()))
        time.sleep(3)
        return [reply for _, reply in pairs]


def unfinished_messages(target: Target) -> list[Reply]:
    """200 sockets whose message of 1 MB never ends."""
    with contextlib.ExitStack() as ends:
        pairs = [ends.enter_context(socket_of(target)) for _ in range(200)]
        for sock, _ in pairs:
            sock.settimeout(2)
            with contextlib.suppress(OSError):
                sock.sendall(frame(TEXT, b" " * 1_000_000, is_final=False))
        time.sleep(1)
        return [reply for _, reply in pairs]


FRAGMENT = frame(CONTINUATION, b"a", is_final=False)
EMPTY = frame(CONTINUATION, b"", is_final=False)
FIRST = frame(TEXT, b"[", is_final=False)
WRONG = frame(TEXT, b'{"model":1}')
DEEP = frame(TEXT, b"[" * 100_000)
CANCEL = frame(TEXT, b'{"type":"cancel"}')
MANY_ARRAYS = frame(TEXT, b'{"x":[' + b"[1]," * 470_000 + b"[1]]}")

ATTACKS = [
    Attack(
        "websocket: 5,000 wrong messages", flood(WRONG * 5_000), answers=OPEN, wall_s=20, cpu_s=4
    ),
    Attack("websocket: 20,000 cancels", flood(CANCEL * 20_000), answers=OPEN, wall_s=20, cpu_s=4),
    Attack(
        "websocket: 50,000 pings", flood(frame(PING) * 50_000), answers=OPEN, wall_s=20, cpu_s=4
    ),
    Attack(
        "websocket: 200,000 empty fragments",
        flood(FIRST + EMPTY * 200_000),
        answers=OPEN,
        wall_s=20,
        cpu_s=4,
    ),
    Attack(
        "websocket: 200,000 fragments of one byte",
        flood(FIRST + FRAGMENT * 200_000),
        answers=OPEN,
        wall_s=20,
        cpu_s=4,
    ),
    Attack(
        "websocket: 50 messages 100,000 deep", flood(DEEP * 50), answers=OPEN, wall_s=20, cpu_s=3
    ),
    Attack("websocket: 1.9 MB of [[1],…", flood(MANY_ARRAYS), answers=OPEN),
    Attack(
        "websocket: one frame of 40 MB",
        flood(frame(TEXT, b" " * 40_000_000)),
        answers=OPEN,
        growth_mb=60,
    ),
    Attack(
        "websocket: 200 messages that do not end",
        unfinished_messages,
        connections=200,
        answers=OPEN,
        wall_s=30,
        cpu_s=2,
    ),
    Attack(
        "websocket: 40 sockets with 8 requests of 16 choices",
        many_requests,
        connections=320,
        answers=OPEN,
        wall_s=30,
        cpu_s=6,
    ),
]
