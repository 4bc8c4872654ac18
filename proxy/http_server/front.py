"""The proxy under uvicorn: runs until a stop is asked for, drains its streams."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import math
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from triton_openai.proxy.access.leaving import Leaving
from triton_openai.proxy.api.bodies.bytes_in_flight import BytesInFlight
from triton_openai.proxy.http_server import connections, descriptors
from triton_openai.proxy.http_server.draining import DrainingServer
from triton_openai.proxy.http_server.intake import Intake
from triton_openai.proxy.processes.errors import LaunchError
from triton_openai.proxy.processes.signals import Stop
from triton_openai.proxy.settings import Settings

ABANDON_S = 1.0
ACCEPTS_A_TURN = 4  # of the event loop, which takes one connection from each listening socket
M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES = -3, 131_072  # glibc's malloc.h, and its default
GC_EVERY = 10_000  # new objects that may be garbage
SOCKET_LIMIT_FACTOR = 2  # a message over the limit is refused; one this much over ends the socket
Say = Callable[[str], None]


class _Server(DrainingServer):
    def __init__(
        self, config: uvicorn.Config, has_started: Callable[[], None], intake: Intake | None
    ) -> None:
        super().__init__(config)
        self._has_started = has_started
        self._intake = intake

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            _leave_out_what_stays()
            self._has_started()
            if self._intake is not None:
                self._intake.open(self)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._intake is not None:
            self._intake.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are `Stop`'s: uvicorn would raise them again and end us before Triton stops."""
        yield


async def run(
    settings: Settings,
    source: socket.socket | Intake,
    *,
    stop: Stop,
    say: Say,
    has_started: Callable[[], None] = lambda: None,
    shared: Path | None = None,
) -> None:
    """Serves until `stop` is asked for and the streams have ended.

    Args:
        source: a bound socket, or a worker's connections.
        has_started: called when it listens, or is about to take connections.
        shared: a folder that all workers have in common.

    Raises:
        LaunchError: the application did not start.
    """
    from triton_openai.proxy.app import create_app
    from triton_openai.proxy.telemetry import logs

    _give_large_blocks_back()
    logs.configure(settings.log_level, settings.log_format)
    app = create_app(settings, shared)
    intake = source if isinstance(source, Intake) else None
    sockets = [] if isinstance(source, Intake) else _accepted_from(source)
    server = _Server(_config(app, settings, app.state.in_flight), has_started, intake)
    relaying = asyncio.create_task(_relay(stop, server, app.state.leaving, say))
    try:
        await server.serve(sockets=sockets)
    finally:
        relaying.cancel()
    if server.force_exit:
        await _abandon(server)
    if not server.started and not stop.asked.is_set():
        raise LaunchError("the proxy did not start: its log above says why")


def _accepted_from(sock: socket.socket) -> list[socket.socket]:
    """Copies of one socket, for a listener each.

    Whether a call blocks is not a property of the copy but of the socket, and `dup` sets it anew.
    """
    sock.setblocking(False)
    return [sock, *(sock.dup() for _ in range(ACCEPTS_A_TURN - 1))]


def _config(app: object, settings: Settings, in_flight: BytesInFlight) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # FastAPI is an ASGI app
        loop="uvloop",
        http=connections.http(
            reader_timeout_s=settings.slow_reader_timeout_s,
            sender_timeout_s=settings.slow_sender_timeout_s,
            body_timeout_s=settings.request_body_timeout_s,
            most=descriptors.for_clients(),
        ),
        ws=connections.websockets(
            reader_timeout_s=settings.slow_reader_timeout_s,
            message_timeout_s=settings.request_body_timeout_s,
            in_flight=in_flight,
        ),
        ws_max_size=SOCKET_LIMIT_FACTOR * settings.max_request_bytes,
        ws_per_message_deflate=False,
        lifespan="on",
        access_log=False,
        log_config=None,
        timeout_keep_alive=math.ceil(settings.idle_connection_timeout_s),
        timeout_graceful_shutdown=math.ceil(settings.drain_timeout_s),
    )


def _give_large_blocks_back() -> None:
    """Blocks of over 128 KB, such as bodies, go back to the system as soon as they are freed.

    glibc raises this threshold when it sees such blocks, and keeps them after a burst of bodies.
    Other C libraries have no such setting.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def _leave_out_what_stays() -> None:
    """The garbage collector need not look at what was imported and built, nor every 700 objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_EVERY, *gc.get_threshold()[1:])


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
