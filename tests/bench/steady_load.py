"""Streams through the API that are replaced when they end, for as long as the plan says.

usage: python -m tests.bench.steady_load < plan.json       prints each Window as a line of JSON

The plan: host, port, path, body, streams (at once), seconds, window_s. The body asks for a stream
with `include_timings`. The first streams are of different lengths, so that ends are spread evenly.
"""

from __future__ import annotations

import json
import re
import select
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.bench.figures import percentile_ms
from tests.bench.sse_load import CONTENT

TIMES = re.compile(rb'"(?:queue|prompt|predicted)_ms":([\d.]+)')
TAIL = 4096  # bytes; more than the chunk with the timings has
SILENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What arrived in one part of the run.

    ttft: of each answer that began. late: of each answer that ended, its whole time less the
    engine's: how long its request and its last token were on the way. gap: between two arrivals of
    one stream. client_s: this process's CPU.
    """

    wall_s: float
    client_s: float
    arrivals: int
    answers: int
    ttft_p50_ms: float
    ttft_p99_ms: float
    late_p50_ms: float
    late_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float


@dataclass(slots=True)
class Connection:
    sock: socket.socket
    began: float
    arrived: float = 0.0  # the last part; 0 before the first one with content
    tail: bytes = b""


@dataclass(slots=True)
class Load:
    plan: dict[str, Any]
    connections: dict[int, Connection] = field(default_factory=dict)
    waiting: select.epoll = field(default_factory=select.epoll)
    gaps: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def run(self) -> Iterator[Window]:
        """Raises RuntimeError if nothing arrives, or an answer is an error or incomplete."""
        streams, most = self.plan["streams"], self.plan["body"]["max_tokens"]
        cpu_s, began = time.process_time(), time.perf_counter()
        end = began + self.plan["seconds"]
        for number in range(streams):
            self._open(max(1, most * (number + 1) // streams))
        while began < end:
            ready = self.waiting.poll(SILENCE_S)
            if not ready:
                raise RuntimeError(f"all streams are silent for {SILENCE_S:g} s")
            for number, _ in ready:
                self._read(self.connections[number])
            if (now := time.perf_counter()) > min(began + self.plan["window_s"], end):
                yield self._window(now - began, time.process_time() - cpu_s)
                cpu_s, began = time.process_time(), now

    def _open(self, max_tokens: int) -> None:
        plan, body = self.plan, json.dumps({**self.plan["body"], "max_tokens": max_tokens}).encode()
        head = (
            f"POST {plan['path']} HTTP/1.1\r\nHost: {plan['host']}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        sock = socket.create_connection((plan["host"], plan["port"]))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections[sock.fileno()] = Connection(sock, time.perf_counter())
        sock.sendall(head.encode() + body)
        sock.setblocking(False)
        self.waiting.register(sock, select.EPOLLIN)

    def _read(self, connection: Connection) -> None:
        part = connection.sock.recv(262_144)
        now = time.perf_counter()
        if part:
            if connection.arrived:
                self.gaps.append(now - connection.arrived)
                connection.arrived = now
            elif CONTENT.search(part):
                self.first.append(now - connection.began)
                connection.arrived = now
            connection.tail = (connection.tail + part)[-TAIL:]
            return
        times_ms = [float(found) for found in TIMES.findall(connection.tail)]
        if b"data: [DONE]" not in connection.tail or len(times_ms) != 3:
            raise RuntimeError(f"an answer ends with {connection.tail!r}")
        self.late.append(connection.arrived - connection.began - sum(times_ms) / 1000)
        self.waiting.unregister(connection.sock)
        del self.connections[connection.sock.fileno()]
        connection.sock.close()
        self._open(self.plan["body"]["max_tokens"])

    def _window(self, wall_s: float, client_s: float) -> Window:
        window = Window(
            wall_s=wall_s,
            client_s=client_s,
            arrivals=len(self.gaps) + len(self.first),
            answers=len(self.late),
            ttft_p50_ms=percentile_ms(self.first, 50),
            ttft_p99_ms=percentile_ms(self.first, 99),
            late_p50_ms=percentile_ms(self.late, 50),
            late_p99_ms=percentile_ms(self.late, 99),
            gap_p50_ms=percentile_ms(self.gaps, 50),
            gap_p99_ms=percentile_ms(self.gaps, 99),
        )
        self.gaps, self.late, self.first = [], [], []
        return window


if __name__ == "__main__":
    for window in Load(json.load(sys.stdin)).run():
        sys.stdout.write(json.dumps(asdict(window)) + "\n")
        sys.stdout.flush()
