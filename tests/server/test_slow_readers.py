"""A client that does not read holds up itself alone, and not for long."""

from __future__ import annotations

import json
import socket

from tests.bench import sse_load
from tests.fixtures.stack import HANG_S, Stack, eventually

TOKENS = 100_000
# So many bytes a token that a stream is more than all buffers on the way hold, however many of its
# tokens join in a response.
MUCH_A_TOKEN = {"logprobs": True, "top_logprobs": 20}
READERS = 3
MEMORY_BYTES = 64_000_000  # of all slow readers together


def opened(stack: Stack) -> socket.socket:
    """A stream of which nothing is read."""
    messages = [{"role": "user", "content": "Hello!"}]
    asked = {"model": "steady", "messages": messages, "max_tokens": TOKENS, "stream": True}
    body = json.dumps({**asked, **MUCH_A_TOKEN}).encode()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", stack.port))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    sock.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    return sock


def test_it_is_cut_off_and_its_engine_row_is_freed_while_others_stream(scripted_stack):
    stack = scripted_stack
    stack.wait_ready()  # an earlier test may have killed Triton
    before, memory = stack.settled_engine("steady"), stack.memory_bytes()
    begun_before = stack.begun("steady")
    # It needs ten minutes for all of the tokens: no stream ends before it is cut off.
    readers = [opened(stack) for _ in range(READERS)]
    try:
        eventually(lambda: stack.begun("steady") - begun_before == READERS, 20, "they run")
        body = {
            "model": "steady", "messages": [{"role": "user", "content": "Hello!"}],
            "max_tokens": 200, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        plan = {"host": "127.0.0.1", "port": stack.port, "path": "/v1/chat/completions"}
        figures = sse_load.run({**plan, "streams": 2, "body": body})
        assert (figures.tokens, figures.errors) == (400, 0)
        assert stack.memory_bytes() - memory < MEMORY_BYTES
        eventually(lambda: stack.engine("steady")["requests_unfinished"] == 0, 40, "rows are free")
        assert "slow reader cut off" in stack.log.read_text()
        after = stack.settled_engine("steady")
        assert after["requests_cancelled"] - before["requests_cancelled"] == READERS
        for reader in readers:
            reader.settimeout(HANG_S)
            assert not ended_well(reader)
    finally:
        for reader in readers:
            reader.close()


def ended_well(reader: socket.socket) -> bool:
    read = b""
    try:
        while part := reader.recv(262_144):
            read += part
    except ConnectionError:
        pass
    return b"data: [DONE]" in read
