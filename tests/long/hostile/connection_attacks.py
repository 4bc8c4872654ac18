"""Connections that do not behave: slow, half finished, hung up, pipelined, or full of headers."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial

from tests.long.hostile.attack import ANY, CLOSED, SILENT, Attack, Reply, Target
from tests.long.hostile.caller import CHAT, connected, encoded, message, status_of
from tests.long.hostile.structured_attacks import chat

WHATEVER = ANY | {CLOSED, SILENT, 408, 503}
HELD_S = 3.0
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST


@contextlib.contextmanager
def opened(target: Target, count: int) -> Iterator[list[socket.socket]]:
    """Connections that are closed at the end, also where the server has closed them before."""
    with contextlib.ExitStack() as ends:
        socks = []
        for _ in range(count):
            with contextlib.suppress(OSError):
                socks.append(ends.enter_context(connected(target)))
        yield socks


def sent(sock: socket.socket, data: bytes) -> bool:
    try:
        sock.sendall(data)
    except OSError:
        return False
    return True


def answered(sock: socket.socket, within_s: float) -> Reply:
    """The first bytes that come."""
    sock.settimeout(max(0.01, within_s))
    try:
        data = sock.recv(65_536)
    except TimeoutError:
        return Reply(status=SILENT)
    except OSError:
        return Reply(status=CLOSED)
    return Reply(status=status_of(data), body=data)


def head(target: Target, length: int, *more: str) -> bytes:
    lines = [
        f"POST {CHAT} HTTP/1.1",
        f"Host: {target.host}:{target.port}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def drips(target: Target) -> list[Reply]:
    """Bodies that come byte by byte."""
    with opened(target, 50) as socks:
        for sock in socks:
            sent(sock, head(target, 1_900_000))
        ends_at = time.monotonic() + HELD_S
        while time.monotonic() < ends_at:
            for sock in socks:
                sent(sock, b" ")
            time.sleep(0.05)
        return [answered(sock, 0.01) for sock in socks]


def slow_heads(target: Target) -> list[Reply]:
    with opened(target, 200) as socks:
        for sock in socks:
            sent(sock, f"POST {CHAT} HTTP/1.1\r\nHost: {target.host}\r\n".encode())
        for number in range(10):
            for sock in socks:
                sent(sock, f"x-{number}: 1\r\n".encode())
            time.sleep(HELD_S / 10)
        return [answered(sock, 0.01) for sock in socks]


def stopped_bodies(target: Target) -> list[Reply]:
    """300 connections that have sent 1 MB of 1.9 MB and then send nothing more."""
    with opened(target, 300) as socks:
        for sock in socks:
            sock.settimeout(2)
            sent(sock, head(target, 1_900_000) + b" " * 1_000_000)
        time.sleep(HELD_S / 3)
        return [answered(sock, 0.01) for sock in socks]


def tiny_chunks(target: Target) -> list[Reply]:
    """A body of 300,000 chunks of one byte."""
    with connected(target) as sock:
        began = head(target, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        sent(sock, began + b"1\r\n \r\n" * 300_000 + b"0\r\n\r\n")
        return [answered(sock, target.timeout_s)]


def endless_chunk_extension(target: Target) -> list[Reply]:
    with connected(target) as sock:
        began = head(target, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        sent(sock, began + b"1;" + b"a=b;" * 1_000_000 + b"\r\n \r\n0\r\n\r\n")
        return [answered(sock, target.timeout_s)]


def both_lengths(target: Target) -> list[Reply]:
    with connected(target) as sock:
        body = encoded(chat()(target))
        sent(sock, head(target, len(body), "Transfer-Encoding: chunked") + body)
        return [answered(sock, 3)]


def pipelined(target: Target) -> list[Reply]:
    """2,000 requests in one write, of which no answer is read."""
    ask = f"GET /health/live HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n\r\n".encode()
    with connected(target) as sock:
        sock.settimeout(5)
        sent(sock, ask * 2_000)
        return [answered(sock, target.timeout_s)]


def pipelined_chats(target: Target) -> list[Reply]:
    body = encoded(chat(max_tokens=1)(target))
    with connected(target) as sock:
        sock.settimeout(5)
        sent(sock, (head(target, len(body)) + body) * 500)
        return [answered(sock, target.timeout_s)]


def many_headers(target: Target) -> list[Reply]:
    with connected(target) as sock:
        sent(sock, head(target, 2, *(f"x-{i}: {'v' * 50}" for i in range(20_000))) + b"{}")
        return [answered(sock, target.timeout_s)]


def one_long_header(target: Target) -> list[Reply]:
    with connected(target) as sock:
        sent(sock, head(target, 2, "x-long: " + "v" * 2_000_000) + b"{}")
        return [answered(sock, target.timeout_s)]


def old_http2(target: Target) -> list[Reply]:
    """HTTP/2 with prior knowledge, then endless empty CONTINUATION frames."""
    headers = b"\x00\x00\x00\x01\x00\x00\x00\x00\x01"
    with connected(target) as sock:
        sent(sock, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00" + b"\x00" * 4)
        sent(sock, headers + b"\x00\x00\x00\x09\x00\x00\x00\x00\x01" * 20_000)
        return [answered(sock, 3)]


def hang_ups(target: Target) -> list[Reply]:
    """Connections that end at every stage of a request, by FIN and by RST."""
    body = encoded(chat(stream=True, max_tokens=1_000)(target))
    whole = message(target, body)
    stages = [0, 10, len(whole) - len(body), len(whole) - len(body) // 2, len(whole)]
    for number in range(300):
        with opened(target, 1) as socks:
            for sock in socks:
                sent(sock, whole[: stages[number % len(stages)]])
                if number % 2:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return []


def cancelled_streams(target: Target) -> list[Reply]:
    """Streams that their callers leave after the first bytes."""
    whole = message(target, encoded(chat(stream=True, max_tokens=1_000)(target)))
    replies = []
    for _ in range(10):
        with opened(target, 20) as socks:
            for sock in socks:
                sent(sock, whole)
            replies += [answered(sock, 5) for sock in socks]
    return replies


def slow_readers(target: Target) -> list[Reply]:
    """Streams of much data a token, of which nothing is read."""
    asked = chat(stream=True, max_tokens=2_000, logprobs=True, top_logprobs=20, n=4)(target)
    whole = message(target, json.dumps(asked).encode())
    with opened(target, 20) as socks:
        for sock in socks:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sent(sock, whole)
        time.sleep(HELD_S)
    return []


def idle_connections(target: Target) -> list[Reply]:
    with opened(target, 1_500):
        time.sleep(HELD_S / 3)
    return []


_attack = partial(Attack, answers=WHATEVER)
ATTACKS = [
    _attack("slow: 50 bodies byte by byte", drips, connections=50, wall_s=30),
    _attack("slow: 200 heads line by line", slow_heads, connections=200, wall_s=30),
    _attack(
        "slow: 300 bodies that stop after 1 MB", stopped_bodies, connections=300, wall_s=30, cpu_s=2
    ),
    _attack("slow: 20 streams that nobody reads", slow_readers, connections=20, wall_s=30, cpu_s=6),
    _attack("slow: 1,500 idle connections", idle_connections, connections=1500, wall_s=30),
    _attack("chunks: 300,000 of one byte", tiny_chunks, answers=ANY | {CLOSED}),
    _attack("chunks: an extension of 4 MB", endless_chunk_extension, answers=ANY | {CLOSED}),
    _attack("chunks: with a length, too", both_lengths, answers=frozenset({400, CLOSED})),
    _attack("pipeline: 2,000 health checks", pipelined, connections=20, cpu_s=3),
    _attack("pipeline: 500 chats", pipelined_chats, connections=500, cpu_s=3),
    _attack("headers: 20,000", many_headers, answers=ANY | {CLOSED}),
    _attack("headers: one of 2 MB", one_long_header, answers=ANY | {CLOSED}),
    _attack("http2: 20,000 empty CONTINUATION frames", old_http2, answers=ANY | {CLOSED}),
    _attack("hang-ups: 300 at every stage", hang_ups, connections=300, wall_s=30, cpu_s=3),
    _attack(
        "hang-ups: 200 streams after the first bytes",
        cancelled_streams,
        connections=200,
        wall_s=30,
        cpu_s=6,
    ),
]
