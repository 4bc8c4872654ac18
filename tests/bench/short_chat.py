"""CPU of a chat of two tokens through the whole proxy, as a multiple of a bare ASGI application's.

    python -m tests.bench.short_chat [REQUESTS] [ROUNDS]

The real stack over the scripted engine, and over the demo model's own; uvicorn serves the bare
application, which sends a prepared answer. Both get eight requests at once over connections that
stay open, in alternating rounds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.scripted_stack import SCRIPTED, demo, running
from tests.fixtures.stack import ROOT, eventually, free_port

AT_ONCE = 8
BODY = {
    "messages": [{"role": "user", "content": "Hello! Who are you?"}],
    "max_tokens": 2,
    "stream": True,
}
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
ANSWER = b'data: {"choices":[{"index":0,"delta":{"content":"ab"}}]}\n\n' * 2 + b"data: [DONE]\n\n"


async def bare(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    await receive()
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


@contextmanager
def bare_server() -> Iterator[tuple[int, int]]:
    """Its process and its port."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", f"{__spec__.name}:bare", "--port", str(port)]
    options = ["--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    process = subprocess.Popen([*command, *options, "--log-level", "error"], cwd=ROOT)
    try:
        eventually(lambda: _answers(port), 10, "the bare application answers")
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        asyncio.run(requests(port, "", AT_ONCE))
    except OSError:
        return False
    return True


async def requests(port: int, model: str, count: int) -> None:
    content = json.dumps({"model": model, **BODY}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(content), content)

    async def one_after_the_other() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(count // AT_ONCE):
            writer.write(request)
            answer = await reader.readuntil(b"\r\n0\r\n\r\n")
            assert b"[DONE]" in answer, answer
        writer.close()

    await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))


def cpu_us(process: int) -> float:
    """Of all its threads so far. psutil counts in steps of 10 ms, too coarse for this."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in threads) / 1000


def main(count: int = 400, rounds: int = 7) -> None:
    models = {"paced": SCRIPTED["paced"], "demo": demo()}
    with running(models) as bench, bare_server() as of_bare:
        servers = {"proxy": (bench.stack.process.pid, bench.stack.port), "bare": of_bare}
        for model in models:
            spent: dict[str, list[float]] = {name: [] for name in servers}
            for number in range(-1, rounds):  # the first warms up
                for name, (process, port) in servers.items():
                    before = cpu_us(process)
                    asyncio.run(requests(port, model, count))
                    if number >= 0:
                        spent[name].append((cpu_us(process) - before) / count)
            proxy, bare = (statistics.median(spent[name]) for name in ("proxy", "bare"))
            times = statistics.median(a / b for a, b in zip(*spent.values(), strict=True))
            sys.stdout.write(
                f"{model}: proxy {proxy:.0f} us a chat, bare {bare:.1f} us, {times:.1f} times\n"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
