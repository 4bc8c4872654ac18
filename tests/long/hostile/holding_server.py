"""A server that fails on request, to try the judge: it streams, and may hold its loop or grow.

usage: python -m tests.long.hostile.holding_server      prints its port
"""

from __future__ import annotations

import asyncio
import re
import sys
import time

STEP_S = 0.02
HOLD_S = 0.6
GROWN_BYTES = 200_000_000
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
MOST_TOKENS = re.compile(rb'"max_tokens": (\d+)')
GROWN: list[bytearray] = []


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    path = head.split(b" ", 2)[1]
    if path == b"/hold":
        ends_at = time.thread_time() + HOLD_S
        while time.thread_time() < ends_at:
            pass
    elif path == b"/grow":
        GROWN.append(bytearray(b"\1") * GROWN_BYTES)
    elif path == b"/silent":
        await asyncio.sleep(3_600)
    elif path == b"/v1/chat/completions":
        await stream(reader, writer)
        return
    status, body = (b"500", b'Traceback, "error"') if path == b"/leak" else (b"200", b"ok")
    writer.write(b"HTTP/1.1 " + status + b" x\r\n\r\n" + body)
    writer.close()


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    most = MOST_TOKENS.search(await reader.read(10_000))
    writer.write(SSE)
    for _ in range(int(most[1]) if most else 16):
        writer.write(b'data: {"content":"a"}\n\n')
        await asyncio.sleep(STEP_S)
        if writer.is_closing():
            return
    writer.write(b"data: [DONE]\n\n")
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


asyncio.run(main())
