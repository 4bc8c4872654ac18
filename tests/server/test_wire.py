"""The stream as bytes on a socket: what SDKs hide."""

from __future__ import annotations

import json
import socket
import time

from tests.fixtures.stack import HANG_S


def chat(stack, **fields) -> list[tuple[float, bytes]]:
    """Raw reads of a streaming answer, each with its time, until the server closes."""
    body = {"model": "endless", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    content = json.dumps({**body, **fields}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{stack.port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    reads = []
    with socket.create_connection(("127.0.0.1", stack.port), timeout=HANG_S) as sock:
        sock.sendall(head.encode() + content)
        while data := sock.recv(65536):
            reads.append((time.monotonic(), data))
    return reads


def test_headers_framing_and_the_order_of_events(stack):
    raw = b"".join(data for _, data in chat(stack, max_tokens=3, temperature=0))
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-cache"
    assert headers[b"x-accel-buffering"] == b"no"
    assert headers[b"transfer-encoding"] == b"chunked"
    events = dechunked(body).split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    payloads = [json.loads(event.removeprefix(b"data: ")) for event in events[:-2]]
    first, *_, last = (payload["choices"][0] for payload in payloads)
    assert first["delta"]["role"] == "assistant"
    assert last["finish_reason"] == "length"


def test_each_event_is_sent_at_once(stack):
    """Of 4,000 tokens, many come well before the last. Under load a client may sleep through it."""

    def come_early() -> int:
        reads = chat(stack, max_tokens=4000, temperature=0)
        last = reads[-1][0]
        return sum(1 for at, _ in reads if at < last - 0.01)

    assert any(come_early() > 20 for _ in range(5))


def dechunked(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        out += rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]
    return out
