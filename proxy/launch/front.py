"""The proxy under uvicorn: runs until a stop is asked for, drains its streams, says when ready."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Iterator

import uvicorn

from proxy.access.leaving import Leaving
from proxy.launch import probe
from proxy.launch.draining import DrainingWebSocket
from proxy.launch.errors import LaunchError
from proxy.launch.signals import Stop
from proxy.settings import Settings

POLL_S = 0.1
REMIND_POLLS = 100
ABANDON_S = 1.0
SOCKET_LIMIT_FACTOR = 2  # a message over the limit is refused; one this much over ends the socket
Say = Callable[[str], None]


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are `Stop`'s: uvicorn would raise them again and end us before Triton stops."""
        yield


async def run(
    settings: Settings, sock: socket.socket, *, model: str | None, stop: Stop, say: Say
) -> None:
    """Serves on the bound socket until `stop` is asked for and the streams have ended.

    Raises:
        LaunchError: the application did not start.
    """
    from proxy.app import create_app
    from proxy.telemetry import logs

    logs.configure(settings.log_level, settings.log_format)
    app = create_app(settings)
    server = _Server(_config(app, settings))
    beside = [
        asyncio.create_task(_relay(stop, server, app.state.leaving, say)),
        asyncio.create_task(_announce(settings, model, say)),
    ]
    try:
        await server.serve(sockets=[sock])
    finally:
        for task in beside:
            task.cancel()
    if server.force_exit:
        await _abandon(server)
    if not server.started and not stop.asked.is_set():
        raise LaunchError("the proxy did not start: its log above says why")


def _config(app: object, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # FastAPI is an ASGI app
        loop="uvloop",
        http="httptools",
        ws=DrainingWebSocket,
        ws_max_size=SOCKET_LIMIT_FACTOR * settings.max_request_bytes,
        ws_per_message_deflate=False,
        lifespan="on",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=math.ceil(settings.drain_timeout_s),
    )


async def _abandon(server: uvicorn.Server) -> None:
    """What uvicorn leaves out when it is hurried: streams would outlive their engine's client."""
    streams = set(server.server_state.tasks)
    for stream in streams:
        stream.cancel()
    if streams:
        await asyncio.wait(streams, timeout=ABANDON_S)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(server.lifespan.shutdown(), ABANDON_S)


async def _relay(stop: Stop, server: uvicorn.Server, leaving: Leaving, say: Say) -> None:
    await stop.asked.wait()
    say("stopping: running streams may end (once more to hurry)")
    leaving.say()
    server.should_exit = True
    await stop.hurried.wait()
    say("hurrying")
    server.force_exit = True


async def _announce(settings: Settings, model: str | None, say: Say) -> None:
    """Waits for readiness, reminding of what it waits for, then says how to send a request."""
    host = _reachable(settings.host)
    polls = 0
    while waits_for := await _not_ready(host, settings.port):
        polls += 1
        if polls % REMIND_POLLS == 0:
            say(f"not ready yet: {waits_for}")
        await asyncio.sleep(POLL_S)
    base = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/v1"
    say(f"ready: {base}")
    say(f"try it:\n{curl(base, model)}")


async def _not_ready(host: str, port: int) -> str | None:
    """What /health/ready says is missing; None when nothing is."""
    try:
        status, body = await probe.get(host, port, "/health/ready")
    except OSError as error:
        return str(error)
    return None if status == 200 else " ".join(body.split())[:300]


def curl(base: str, model: str | None) -> str:
    """One line to paste."""
    if model is None:
        return f"curl {base}/models"
    body = (
        f'{{"model": "{model}", "stream": true, '
        '"messages": [{"role": "user", "content": "Hello! Who are you?"}]}'
    )
    return f"curl -N {base}/chat/completions -H 'Content-Type: application/json' -d '{body}'"


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
