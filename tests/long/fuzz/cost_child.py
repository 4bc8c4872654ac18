"""The proxy in this process, and what each request costs its event loop. Started by cost.CostMeter.

Reads cases as lines of JSON and answers each with a line: loop_s, the longest time that one step of
the loop took (CPU of its thread); total_s, all steps; grown_bytes, memory at its peak; and is_free,
whether its caller's limit on requests has not counted it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import tempfile
import time
from asyncio import events
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from proxy.access.process_sandbox import ProcessSandbox
from proxy.app import compose
from proxy.domain.engine import EngineRequest
from proxy.domain.identity import Limits
from proxy.domain.tokenizer import AdmittedPrompt
from proxy.settings import Settings
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.doubles.tokenizer import ByteTokenizer
from tests.fixtures.limits import AsCaller, caller
from tests.long.fuzz.cases import SOCKET, Case

STEP_S = 1e-6  # tokens come in steps of the loop, as they do from a real engine
MEMORY_BYTES = 3_000_000_000
POLICY = "models: {demo: {weights: w, chat_template: true, chat_template_kwargs: true}}"
# with a place for everything that a caller can send to a template
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}<tool_call>{% endfor %}"
    "{% for document in documents or [] %}{{ document }}{% endfor %}{{ a or '' }}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MODEL = replace(FACTS, chat_template=TEMPLATE, context_length=100_000)
# its requests are bounded and counted
LIMITED = caller(key=Limits(tokens_per_minute=10**12, requests_per_day=10**6))
LEFT = b"x-ratelimit-remaining-requests"
HEADERS = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]


class Meter:
    """Measures every callback of the loop, in place of asyncio's own way to run one."""

    def __init__(self) -> None:
        self.longest_s = self.total_s = 0.0
        self.left: int | None = None  # requests, after the last answer
        self._run = events.Handle._run
        meter = self

        def measured(handle: events.Handle) -> None:
            began = time.thread_time()
            meter._run(handle)
            spent = time.thread_time() - began
            meter.total_s += spent
            meter.longest_s = max(meter.longest_s, spent)

        events.Handle._run = measured

    def close(self) -> None:
        events.Handle._run = self._run

    def reset(self) -> None:
        self.longest_s = self.total_s = 0.0


class OffLoop(ByteTokenizer):
    """Counts in a thread: what a tokenizer of Triton's does is no work of the loop."""

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        return await asyncio.to_thread(_result, super().admit(request))


def _result(admitting: Coroutine[Any, Any, AdmittedPrompt]) -> AdmittedPrompt:
    """Of a coroutine that waits for nothing. A loop of its own would be measured as well."""
    try:
        admitting.send(None)
    except StopIteration as found:
        return found.value
    raise AssertionError("the tokenizer's double waits")


async def call(app: Any, case: Case, data: bytes) -> tuple[int, int | None]:
    """The status, for a WebSocket the code of its end, or 0; and the requests that are left."""
    is_socket = case.path == SOCKET
    received = _socket_messages(data) if is_socket else _http_messages(data)
    statuses: list[int] = []
    left: list[int] = []
    is_answered = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if received:
            return received.pop(0)
        await is_answered.wait()
        return {"type": "websocket.disconnect" if is_socket else "http.disconnect", "code": 1000}

    async def send(message: dict[str, Any]) -> None:
        statuses.extend(message[key] for key in ("status", "code") if key in message)
        left.extend(int(value) for name, value in message.get("headers", ()) if name == LEFT)
        ends = message["type"] == "http.response.body" and not message.get("more_body")
        is_last = is_socket and ('"done"' in (text := message.get("text", "")) or '"error"' in text)
        if ends or is_last:
            is_answered.set()

    await app(_scope(case.path, is_socket=is_socket), receive, send)
    return statuses[0] if statuses else 0, left[0] if left else None


def _http_messages(data: bytes) -> list[dict[str, Any]]:
    return [{"type": "http.request", "body": data, "more_body": False}]


def _socket_messages(data: bytes) -> list[dict[str, Any]]:
    return [
        {"type": "websocket.connect"},
        {"type": "websocket.receive", "bytes": data},
        {"type": "websocket.receive", "text": '{"type":"cancel"}'},
        {"type": "websocket.receive", "text": "{}"},  # answered with an error: the last answer
    ]


def _scope(path: str, *, is_socket: bool) -> dict[str, Any]:
    kind = {"type": "websocket"} if is_socket else {"type": "http", "method": "POST"}
    return {
        **kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws" if is_socket else "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": HEADERS,
        "subprotocols": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 9000),
        "state": {},
        "extensions": {},
    }


def memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def memory_anew() -> int:
    """Memory now; from here on a new peak is counted."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


async def measured(app: Any, meter: Meter, case: Case) -> dict[str, Any]:
    data = case.data
    gc.collect()
    before = memory_anew()
    gc.disable()
    await asyncio.sleep(0)  # what came before is over: the next step is the request's
    meter.reset()
    status: int | str
    left = None
    try:
        status, left = await asyncio.ensure_future(call(app, case, data))
    except Exception as error:
        status = type(error).__name__
    finally:
        gc.enable()
    is_free, meter.left = left is None or left == meter.left, left
    return {
        "status": status,
        "is_free": is_free,
        "loop_s": meter.longest_s,
        "total_s": meter.total_s,
        "grown_bytes": max(0, memory("VmHWM") - before),
    }


async def serve(answers: TextIO) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "models.yaml"
        file.write_text(POLICY)
        engine = ScriptedEngine(deltas("abab" * 4), pause_s=STEP_S)
        meter = Meter()
        settings = Settings(models_file=file, log_level="error")
        catalog = FixedCatalog(facts=MODEL)
        # what runs in the sandbox costs the loop nothing: do not wait for long
        app = compose(settings, engine, catalog, OffLoop(), ProcessSandbox(cpu_s=0.5))
        async with app.router.lifespan_context(app):
            loop = asyncio.get_running_loop()
            gc.collect()
            gc.freeze()  # what the imports made is not looked through for each case
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                limited = AsCaller(app, LIMITED)
                found = await measured(limited, meter, Case(**json.loads(line)))
                engine.requests.clear()
                answers.write(json.dumps(found) + "\n")
                answers.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    own_stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the proxy's log goes elsewhere
    asyncio.run(serve(own_stdout))
