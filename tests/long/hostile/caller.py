"""HTTP clients of the attacks: one request, or a burst of them, over plain sockets."""

from __future__ import annotations

import json
import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.long.hostile.attack import CLOSED, SILENT, Reply, Target

KEPT_BYTES = 20_000  # of a reply
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
RENDER = "/v1/chat/completions/render"
SOCKET = "/v1/chat/completions/ws"
Body = Callable[[Target], Any]


def allow_many_connections() -> None:
    """Raises this process's limit of open files as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def encoded(body: Any, *, ascii_only: bool = True) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=ascii_only).encode()


def message(
    target: Target,
    body: bytes,
    path: str = CHAT,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A whole HTTP/1.1 request, after which the server closes the connection."""
    fields = {
        "Host": f"{target.host}:{target.port}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def connected(target: Target) -> socket.socket:
    source = (target.source, 0) if target.source else None
    sock = socket.create_connection(target.address, timeout=target.timeout_s, source_address=source)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@dataclass(frozen=True, slots=True)
class Burst:
    """Sends the same request `count` times, each on a connection of its own, all at once.

    The body is built before the clock starts. declared: the route, where it is not the path.
    """

    body: Body
    path: str
    count: int
    declared: str = ""

    @property
    def route(self) -> str:
        return self.declared or self.path

    def __call__(self, target: Target) -> list[Reply]:
        request = message(target, encoded(self.body(target)), self.path)
        return many(target, [request] * self.count, self.count)


def post(body: Body, path: str = CHAT, route: str = "") -> Burst:
    """One request. route: as the application declares it, where that is not the path."""
    return Burst(body, path, 1, declared=route)


def burst(body: Body, path: str = CHAT, *, count: int, route: str = "") -> Burst:
    return Burst(body, path, count, declared=route)


def exchange(target: Target, request: bytes) -> Reply:
    return many(target, [request], 1)[0]


@dataclass(slots=True)
class _Call:
    """One connection: what is still to be sent, and what has come back."""

    unsent: memoryview
    began: float
    received: bytearray = field(default_factory=bytearray)

    def reply(self, *, is_silent: bool = False) -> Reply:
        status = status_of(bytes(self.received))
        if is_silent and status == CLOSED:
            status = SILENT
        return Reply(status=status, body=bytes(self.received), wall_s=time.monotonic() - self.began)


def status_of(received: bytes) -> int:
    """The status of a response's first line; CLOSED where there is none."""
    words = received[:64].split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1][:3].isdigit():
        return CLOSED
    return int(words[1][:3])


def many(target: Target, requests: Iterable[bytes], at_once: int) -> list[Reply]:
    """Sends all requests, so many of them at once; those open at the time limit are SILENT."""
    waiting, replies = list(requests)[::-1], []
    ends_at = time.monotonic() + target.timeout_s
    with selectors.DefaultSelector() as selector:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < at_once:
                call = _Call(memoryview(waiting.pop()), time.monotonic())
                if (sock := _opened(target)) is None:
                    replies.append(call.reply())
                    continue
                selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, call)
            if time.monotonic() > ends_at:
                break
            for key, events in selector.select(timeout=0.1):
                if _is_over(selector, key, events):
                    replies.append(key.data.reply())
                    _close(selector, key)
        for key in list(selector.get_map().values()):
            replies.append(key.data.reply(is_silent=True))
            _close(selector, key)
    now = time.monotonic()
    unsent = [_Call(memoryview(b""), now).reply(is_silent=True) for _ in waiting]
    return replies + unsent


def _opened(target: Target) -> socket.socket | None:
    try:
        sock = connected(target)
    except OSError:
        return None
    sock.setblocking(False)
    return sock


def _is_over(selector: Any, key: Any, events: int) -> bool:
    call: _Call = key.data
    try:
        if events & selectors.EVENT_WRITE:
            sent = key.fileobj.send(call.unsent[:262_144])
            call.unsent = call.unsent[sent:]
            if not call.unsent:
                selector.modify(key.fileobj, selectors.EVENT_READ, call)
        if events & selectors.EVENT_READ:
            part = key.fileobj.recv(262_144)
            call.received += part[: KEPT_BYTES - len(call.received)]
            return not part
    except BlockingIOError:
        return False
    except OSError:
        # it refused the rest of the body: the answer may be there already
        return _drained(key.fileobj, call)
    return False


def _drained(sock: socket.socket, call: _Call) -> bool:
    try:
        while part := sock.recv(65_536):
            call.received += part[: KEPT_BYTES - len(call.received)]
    except OSError:
        pass
    return True


def _close(selector: Any, key: Any) -> None:
    selector.unregister(key.fileobj)
    key.fileobj.close()
