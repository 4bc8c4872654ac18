"""Streams through the API that are replaced when they end, for as long as the plan says.

usage: python -m tests.bench.steady_load < plan.json       prints a list of Windows as JSON

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
from dataclasses import asdict, dataclass, field
from typing import Any

TIMES = re.compile(rb'"(?:queue|prompt|predicted)_ms":([\d.]+)')
TAIL = 4096  # bytes; more than the chunk with the timings has
SILENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What arrived in one part of the run.

    late: of each answer that ended, its whole time less the engine's: how long its request and its
    last token were on the way. gap: between two arrivals of one stream.
    """

    arrivals: int
    answers: int
    late_p50_ms: float
    late_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float


@dataclass(slots=True)
class Connection:
    sock: socket.socket
    began: float
    arrived: float = 0.0
    tail: bytes = b""


@dataclass(slots=True)
class Load:
    plan: dict[str, Any]
    connections: dict[int, Connection] = field(default_factory=dict)
    waiting: select.epoll = field(default_factory=select.epoll)
    gaps: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)

    def run(self) -> list[Window]:
        """Raises RuntimeError if nothing arrives, or an answer is an error or incomplete."""
        streams, most = self.plan["streams"], self.plan["body"]["max_tokens"]
        for number in range(streams):
            self._open(max(1, most * (number + 1) // streams))
        began, windows = time.perf_counter(), list[Window]()
        while len(windows) * self.plan["window_s"] < self.plan["seconds"]:
            ready = self.waiting.poll(SILENCE_S)
            if not ready:
                raise RuntimeError(f"all streams are silent for {SILENCE_S:g} s")
            for number, _ in ready:
                self._read(self.connections[number])
            if time.perf_counter() - began > (len(windows) + 1) * self.plan["window_s"]:
                windows.append(self._window())
        return windows

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

    def _window(self) -> Window:
        gaps, late = sorted(self.gaps), sorted(self.late)
        self.gaps.clear()
        self.late.clear()
        return Window(
            arrivals=len(gaps),
            answers=len(late),
            late_p50_ms=_percentile_ms(late, 0.5),
            late_p99_ms=_percentile_ms(late, 0.99),
            gap_p50_ms=_percentile_ms(gaps, 0.5),
            gap_p99_ms=_percentile_ms(gaps, 0.99),
        )


def _percentile_ms(ordered: list[float], share: float) -> float:
    return round(1000 * ordered[int(share * (len(ordered) - 1))], 2) if ordered else 0.0


if __name__ == "__main__":
    windows = Load(json.load(sys.stdin)).run()
    sys.stdout.write(json.dumps([asdict(window) for window in windows]))
