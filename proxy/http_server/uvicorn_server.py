"""Runs the proxy under uvicorn until it is stopped, then drains its streams.

Called by launch.run.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import math
import socket
from collections.abc import Callable, Iterator

import uvicorn

from triton_openai.proxy.api.bodies.bytes_in_flight import BytesInFlight
from triton_openai.proxy.http_server import descriptors, protocols, tls
from triton_openai.proxy.http_server.draining import DrainingServer
from triton_openai.proxy.http_server.forwarded import KeepsPeer
from triton_openai.proxy.http_server.tls import ReloadingTls
from triton_openai.proxy.http_server.tls_listener import TlsListener
from triton_openai.proxy.processes.errors import LaunchError
from triton_openai.proxy.processes.hangup import on_hangup
from triton_openai.proxy.processes.signals import Stop
from triton_openai.proxy.settings import Settings

ABANDON_S = 1.0
LISTENERS = 4  # in a turn, the event loop accepts one connection from each listening socket
M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES = -3, 131_072  # glibc's malloc.h, and its default
GC_EVERY = 10_000  # new objects between two collections
SOCKET_LIMIT_FACTOR = 2  # a message beyond the limit is refused; so far beyond, it ends the socket
Say = Callable[[str], None]


class _Server(DrainingServer):
    def __init__(
        self,
        config: uvicorn.Config,
        listener: TlsListener | None,
        own_tls: ReloadingTls | None,
    ) -> None:
        super().__init__(config)
        self._own_tls = own_tls
        self._listener = listener

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            _freeze_long_lived_objects()
            if self._listener is not None:
                self._listener.open(self, self._own_tls)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._listener is not None:
            self._listener.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to `Stop`; uvicorn would raise them again, before Triton has stopped."""
        yield


async def run(settings: Settings, sock: socket.socket, *, stop: Stop, say: Say) -> None:
    """Serves on a bound socket until `stop` is requested and the streams have ended.

    Raises:
        LaunchError: the application did not start, or the files for TLS cannot be used.
    """
    from triton_openai.proxy.app import create_app
    from triton_openai.proxy.telemetry import logs

    _return_large_blocks()
    logs.configure(settings.log_level, settings.log_format, has_content=settings.log_content)
    app = create_app(settings)
    own_tls = tls.configured(settings)
    listener = None if own_tls is None else TlsListener(sock)
    config = _config(app, settings, app.state.in_flight, own_tls)
    server = _Server(config, listener, own_tls)
    relaying = asyncio.create_task(_relay(stop, server, app.state.stopping, say))
    try:
        async with contextlib.nullcontext() if own_tls is None else own_tls.followed():
            with on_hangup(app.state.policy_watch.read_again, stop):
                await server.serve(sockets=_listeners(sock) if listener is None else [])
    finally:
        relaying.cancel()
    if server.force_exit:
        await _abandon(server)
    if not server.started and not stop.requested.is_set():
        raise LaunchError("the proxy did not start: its log above says why")


def _listeners(sock: socket.socket) -> list[socket.socket]:
    """LISTENERS duplicates of one socket. All share its blocking mode, which `dup` sets again."""
    sock.setblocking(False)
    return [sock, *(sock.dup() for _ in range(LISTENERS - 1))]


def _config(
    app: object, settings: Settings, in_flight: BytesInFlight, own_tls: ReloadingTls | None
) -> uvicorn.Config:
    return uvicorn.Config(
        KeepsPeer(app),
        proxy_headers=False,
        ssl_context_factory=None if own_tls is None else lambda *_: own_tls.context,
        loop="uvloop",
        http=protocols.http(
            reader_timeout_s=settings.slow_reader_timeout_s,
            sender_timeout_s=settings.slow_sender_timeout_s,
            body_timeout_s=settings.request_body_timeout_s,
            most=descriptors.for_clients(),
        ),
        ws=protocols.websockets(
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


def _return_large_blocks() -> None:
    """Returns blocks over 128 KB, such as bodies, to the system as soon as they are freed.

    glibc raises this threshold when it sees such blocks, and then keeps their memory after a burst
    of bodies. Other C libraries lack the setting.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def _freeze_long_lived_objects() -> None:
    """Excludes what exists at the start from garbage collection, and makes collections rarer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_EVERY, *gc.get_threshold()[1:])


async def _abandon(server: uvicorn.Server) -> None:
    """Cancels the streams, which uvicorn leaves running when it is forced to exit."""
    streams = set(server.server_state.tasks)
    for stream in streams:
        stream.cancel()
    if streams:
        await asyncio.wait(streams, timeout=ABANDON_S)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(server.lifespan.shutdown(), ABANDON_S)


async def _relay(stop: Stop, server: uvicorn.Server, stopping: asyncio.Event, say: Say) -> None:
    await stop.requested.wait()
    say("stopping: running streams may end (once more to hurry)")
    stopping.set()
    server.should_exit = True
    await stop.hurried.wait()
    say("hurrying")
    server.force_exit = True
