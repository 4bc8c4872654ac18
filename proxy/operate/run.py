"""The three commands that run: Triton and proxy together, Triton alone, the proxy alone."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from proxy.operate import announcement, key_store, scheduling
from proxy.operate.triton_server import drain
from proxy.operate.triton_server.server import EXIT_TIMEOUT_S, TritonServer
from proxy.operate.triton_server.supervisor import Supervisor
from proxy.processes.signals import Stop, stop_on_signals
from proxy.server import uvicorn_server
from proxy.settings import Settings

Say = Callable[[str], None]


async def together(
    settings: Settings, server: TritonServer, sock: socket.socket, *, model: str, say: Say
) -> None:
    settings = await key_store.prepared(settings, say)
    scheduling.apply(say)
    with stop_on_signals() as stop:
        async with _triton(settings, server, stop, say) as is_up:
            if is_up:
                say("starting the proxy")
                await _serve(settings, sock, model, stop, say)
    say("stopped")


async def triton(settings: Settings, server: TritonServer, say: Say) -> None:
    settings = await key_store.prepared(settings, say)
    scheduling.apply(say)
    with stop_on_signals() as stop:
        async with _triton(settings, server, stop, say) as is_up:
            if is_up:
                await stop.requested.wait()
                await stop.unless_hurried(
                    drain.drain(settings, server.ports, server.shm_prefix, say)
                )
    say("stopped")


async def proxy(settings: Settings, sock: socket.socket, *, model: str | None, say: Say) -> None:
    settings = await key_store.prepared(settings, say)
    scheduling.apply(say)
    with stop_on_signals() as stop:
        say(f"starting the proxy for Triton at {settings.triton_target}")
        await _serve(settings, sock, model, stop, say)
    say("stopped")


async def _serve(
    settings: Settings, sock: socket.socket, model: str | None, stop: Stop, say: Say
) -> None:
    say(f"live state: {settings.live_state}")
    async with announcement.running(settings, model, say):
        await uvicorn_server.run(settings, sock, stop=stop, say=say)


@asynccontextmanager
async def _triton(
    settings: Settings, server: TritonServer, stop: Stop, say: Say
) -> AsyncIterator[bool]:
    """The supervised server; yields False if a stop was requested before it was ready."""
    supervisor = Supervisor(server, name="tritonserver", say=say)
    say(f"starting tritonserver (gRPC {settings.triton_host}:{settings.triton_grpc_port})")
    try:
        yield await stop.unless_requested(supervisor.start())
    finally:
        if supervisor.is_running:
            say("stopping tritonserver")
        if not await stop.unless_hurried(supervisor.stop(grace_s=EXIT_TIMEOUT_S + 2)):
            await supervisor.stop(grace_s=0)
