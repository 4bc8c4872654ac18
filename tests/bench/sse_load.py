"""Streams through the API, from one thread over epoll: a client that costs little beside them.

usage: python -m tests.bench.sse_load < plan.json        prints Figures as JSON

Arrivals are kept as they come and read when all is over. The plan: host, port, path, streams (at
once, each on a connection of its own), and body, which must ask for a stream with usage. In place
of streams and body it may have bodies, one for each stream.
"""

from __future__ import annotations

import json
import re
import select
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.bench.figures import Figures, Stream, figures_of

TOKENS = re.compile(rb'"completion_tokens":(\d+)')
CONTENT = re.compile(rb'"(?:content|text|reasoning|reasoning_content)":"[^"]')
SILENCE_S = 60.0


@dataclass(slots=True)
class Connection:
    sock: socket.socket
    began: float
    arrived: list[float] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return b"data: [DONE]" in b"".join(self.parts[-3:])

    def stream(self) -> Stream:
        found = TOKENS.findall(b"".join(self.parts))
        with_content = [
            moment
            for moment, part in zip(self.arrived, self.parts, strict=True)
            if CONTENT.search(part)
        ]
        return Stream(began=self.began, arrived=with_content, tokens=int(found[-1]) if found else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRun:
    """client_s: the generator's own CPU. errors: the ends of answers that are not whole."""

    streams: list[Stream]
    wall_s: float
    client_s: float
    errors: list[bytes]


def run(plan: dict[str, Any]) -> Figures:
    """Raises RuntimeError where nothing comes any more."""
    done = load(plan)
    return figures_of(
        done.streams, wall_s=done.wall_s, client_s=done.client_s, errors=len(done.errors)
    )


def load(plan: dict[str, Any]) -> LoadRun:
    """Raises RuntimeError when nothing arrives for SILENCE_S."""
    bodies = plan["bodies"] if "bodies" in plan else [plan["body"]] * plan["streams"]
    requests = [_request(plan, json.dumps(body).encode()) for body in bodies]
    cpu, began = time.process_time(), time.perf_counter()
    with ExitStack() as resources:
        connections = _opened(plan, requests, resources)
        _read_out(connections, resources.enter_context(select.epoll()))
        wall_s, client_s = time.perf_counter() - began, time.process_time() - cpu
    return LoadRun(
        streams=[connection.stream() for connection in connections],
        wall_s=wall_s,
        client_s=client_s,
        errors=[b"".join(one.parts)[-1000:] for one in connections if not one.is_whole],
    )


def _request(plan: dict[str, Any], body: bytes) -> bytes:
    head = (
        f"POST {plan['path']} HTTP/1.1\r\nHost: {plan['host']}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _opened(plan: dict[str, Any], requests: list[bytes], resources: ExitStack) -> list[Connection]:
    connections = []
    for request in requests:
        sock = socket.create_connection((plan["host"], plan["port"]))
        resources.enter_context(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append(Connection(sock, time.perf_counter()))
        sock.sendall(request)
        sock.setblocking(False)
    return connections


def _read_out(connections: list[Connection], waiting: select.epoll) -> None:
    by_number = {connection.sock.fileno(): connection for connection in connections}
    for number in by_number:
        waiting.register(number, select.EPOLLIN)
    left = len(connections)
    while left:
        ready = waiting.poll(SILENCE_S)
        if not ready:
            raise RuntimeError(f"{left} streams are silent for {SILENCE_S:g} s")
        for number, _ in ready:
            if _read(by_number[number]):
                waiting.unregister(number)
                left -= 1


def _read(connection: Connection) -> bool:
    """Whether it is over."""
    try:
        part = connection.sock.recv(262_144)
    except ConnectionError:
        part = b""
    if part:
        connection.arrived.append(time.perf_counter())
        connection.parts.append(part)
    return not part


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(run(json.load(sys.stdin)))))
