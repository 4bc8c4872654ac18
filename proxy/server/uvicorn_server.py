"""Runs the proxy under uvicorn until it is stopped, then drains its streams. Called by operate.run.

Of uvicorn we use what it passes to a protocol (see `http_connection`), `uvicorn.Config`, and of
`uvicorn.Server` the names in `DrainingServer` and `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import math
import resource
import select
import socket
from collections.abc import Callable, Iterator

import uvicorn

from proxy import background
from proxy.domain.errors import LaunchError
from proxy.server import http_connection, tls
from proxy.server.connection import Bounds
from proxy.server.stop import Stop, on_hangup
from proxy.settings import Settings

ABANDON_S = 2.0  # for cancelled streams and the application's own end
ACCEPT_S = 1.0  # at most, because new clients may keep connecting
LISTENERS = 4  # in a turn, the event loop accepts one connection from each listening socket
M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES = -3, 131_072  # glibc's malloc.h, and its default
GC_EVERY = 10_000  # new objects between two collections
SOCKET_LIMIT_FACTOR = 2  # a message beyond the limit is refused; so far beyond, it ends the socket
ENOUGH_DESCRIPTORS = 65_536
# for connections to Triton, the log, /proc, metrics files, and what is opened briefly
OWN_DESCRIPTORS = 96
Say = Callable[[str], None]


class DrainingServer(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        _freeze_long_lived_objects()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts waiting connections first, since closing the socket resets them."""
        if sockets:
            await accept_waiting(sockets[0])
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to `Stop`; uvicorn would raise them again, before Triton has stopped."""
        yield


async def run(settings: Settings, sock: socket.socket, *, stop: Stop, say: Say) -> None:
    """Serves a bound socket until `stop` is requested and the streams have ended.

    Raises:
        LaunchError: the application did not start, or the files for TLS cannot be used.
    """
    from proxy.app import create_app
    from proxy.telemetry import logs

    _return_large_blocks()
    logs.configure(settings.log_level, settings.log_format, has_content=settings.log_content)
    app = create_app(settings)
    own_tls = tls.configured(settings)
    descriptors = descriptors_for_clients()
    handshakes = 0 if own_tls is None else min(tls.MOST_HANDSHAKES, max(1, descriptors // 4))
    bounds = Bounds(
        reader_timeout_s=settings.slow_reader_timeout_s,
        idle_timeout_s=settings.idle_connection_timeout_s,
        most_connections=max(1, descriptors - handshakes),
        most_message_bytes=SOCKET_LIMIT_FACTOR * settings.max_request_bytes,
        in_flight=app.state.in_flight,
    )
    protocol: type[asyncio.Protocol] = http_connection.bound(bounds, app.state.stopping)
    if own_tls is not None:
        protocol = tls.gated(protocol, tls.Handshakes(own_tls, most=handshakes))
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=protocol,
        ws="none",  # http_connection hands over by itself
        lifespan="on",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=math.ceil(settings.drain_timeout_s),
    )
    server = DrainingServer(config)
    async with contextlib.nullcontext() if own_tls is None else own_tls.followed():
        with on_hangup(app.state.policy_watch.read_again, stop):
            serving = asyncio.create_task(serve(server, sock))
            stopping = asyncio.create_task(relay(stop, server, app.state.stopping, say, serving))
            try:
                await asyncio.wait({serving})
            finally:
                stopping.cancel()
                await background.end([serving])
    if not serving.cancelled():
        serving.result()
    if not server.started and not stop.requested.is_set():
        raise LaunchError("the proxy did not start: its log above says why")


async def serve(server: DrainingServer, sock: socket.socket) -> None:
    with contextlib.suppress(SystemExit):  # the application did not start
        await server.serve(sockets=_listeners(sock))


async def relay(
    stop: Stop,
    server: DrainingServer,
    stopping: asyncio.Event,
    say: Say,
    serving: asyncio.Task[None],
) -> None:
    """Has the server drain at the first signal, and give up what still runs at the second."""
    await stop.requested.wait()
    say("stopping: running streams may end (once more to hurry)")
    stopping.set()
    server.should_exit = True
    await stop.hurried.wait()
    say("hurrying")
    streams = set(server.server_state.tasks)
    for stream in streams:
        stream.cancel()
    if streams:
        await asyncio.wait(streams, timeout=ABANDON_S)
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(ABANDON_S)  # uvicorn has the application end
    serving.cancel()


async def accept_waiting(listening: socket.socket) -> None:
    """Returns when the event loop has accepted all waiting connections, or after ACCEPT_S."""
    loop, queue = asyncio.get_running_loop(), select.poll()
    queue.register(listening, select.POLLIN)
    end = loop.time() + ACCEPT_S
    while queue.poll(0) and loop.time() < end:  # noqa: ASYNC110  (there is no event)
        await asyncio.sleep(0)


def descriptors_for_clients() -> int:
    """How many connections this process may have. Raises the soft limit, usually 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < ENOUGH_DESCRIPTORS:
        is_endless = hard == resource.RLIM_INFINITY
        raised = ENOUGH_DESCRIPTORS if is_endless else min(ENOUGH_DESCRIPTORS, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit, too
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return max(1, soft - OWN_DESCRIPTORS)


def _listeners(sock: socket.socket) -> list[socket.socket]:
    """LISTENERS duplicates of one socket. All share its blocking mode, which `dup` sets again."""
    sock.setblocking(False)
    return [sock, *(sock.dup() for _ in range(LISTENERS - 1))]


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
