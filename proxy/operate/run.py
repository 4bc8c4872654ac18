"""What runs: Triton and proxy together, Triton alone, the proxy alone.

Prints when the proxy is ready, and until then what it waits for.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from build_engines.deployments import early_sunsets
from build_engines.models_file import unpriced
from proxy.operate import start, store
from proxy.operate.triton_server import probe
from proxy.operate.triton_server.launch import EXIT_TIMEOUT_S, Launch
from proxy.operate.triton_server.server import TritonServer
from proxy.operate.triton_server.supervisor import Supervisor
from proxy.server.stop import Stop, stop_on_signals
from proxy.settings import Settings

FEW_CORES = 4
POLL_S = 0.25
REMIND_POLLS = 40
Say = Callable[[str], None]


async def together(
    settings: Settings, launch: Launch, sock: socket.socket, *, model: str, say: Say
) -> None:
    server = TritonServer(launch)
    async with (
        _started(settings, say) as (settings, stop),
        _supervised(settings, server, stop, say) as is_up,
    ):
        if is_up:
            say("starting the proxy")
            await _serve(settings, sock, model, stop, say)


async def triton(settings: Settings, launch: Launch, say: Say) -> None:
    server = TritonServer(launch, shows_log=True)
    async with (
        _started(settings, say) as (settings, stop),
        _supervised(settings, server, stop, say) as is_up,
    ):
        if is_up:
            await stop.requested.wait()
            await stop.unless_hurried(server.drain(settings.drain_timeout_s, say))


async def proxy(settings: Settings, sock: socket.socket, *, model: str | None, say: Say) -> None:
    async with _started(settings, say) as (settings, stop):
        say(f"starting the proxy for Triton at {settings.triton_target}")
        await _serve(settings, sock, model, stop, say)


@asynccontextmanager
async def _started(settings: Settings, say: Say) -> AsyncIterator[tuple[Settings, Stop]]:
    """Settings with the store's address, and what signals set."""
    entries = start.entries(settings)
    for line in early_sunsets(entries):
        say(f"warning: models.yaml: {line}")
    settings = await store.prepared(settings, say, unpriced(entries))
    _schedule_for_few_cores(say)
    with stop_on_signals() as stop:
        yield settings, stop
    say("stopped")


def _schedule_for_few_cores(say: Say) -> None:
    """Chooses the kernel's policy `batch` for this thread and all that it starts.

    Each token wakes one process after the other, and a process that wakes preempts one that has not
    finished. On two cores that means two or three switches per delta, and new requests wait
    longest. Under SCHED_BATCH (sched(7)) a process that wakes preempts nothing; with a free core it
    makes no difference.
    """
    if not hasattr(os, "SCHED_BATCH") or (cores := len(os.sched_getaffinity(0))) > FEW_CORES:
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:
        say(f"CPU scheduling stays normal on {cores} cores: batch is refused ({error})")
    else:
        say(f"CPU scheduling: batch, for {cores} cores")


async def _serve(
    settings: Settings, sock: socket.socket, model: str | None, stop: Stop, say: Say
) -> None:
    from proxy.server import uvicorn_server  # heavy, and of no use to `triton`

    say(f"live state: {settings.live_state}")
    owner = "each tenant's own" if settings.isolates_prefix_caches else "shared by all callers"
    say(f"cached prefixes: {owner} (ISOLATE_PREFIX_CACHES)")
    announcing = asyncio.create_task(announce(settings, model, say))
    try:
        await uvicorn_server.run(settings, sock, stop=stop, say=say)
    finally:
        announcing.cancel()


@asynccontextmanager
async def _supervised(
    settings: Settings, server: TritonServer, stop: Stop, say: Say
) -> AsyncIterator[bool]:
    """Yields False if a stop was requested before the server was ready."""
    supervisor = Supervisor(server, say)
    say(f"starting tritonserver (gRPC {settings.triton_host}:{settings.triton_grpc_port})")
    try:
        yield await stop.unless_requested(supervisor.start())
    finally:
        if supervisor.is_running:
            say("stopping tritonserver")
        if not await stop.unless_hurried(supervisor.stop(grace_s=EXIT_TIMEOUT_S + 2)):
            await supervisor.stop(grace_s=0)


async def announce(settings: Settings, model: str | None, say: Say) -> None:
    """Waits for readiness, printing reminders; then prints how to send a request.

    Args:
        model: the one in the printed curl command.
    """
    from proxy.api.http.application import NO_ADMIN

    polls = 0
    while waits_for := await asyncio.to_thread(_not_ready, settings):
        polls += 1
        if polls % REMIND_POLLS == 0:
            say(f"not ready yet: {waits_for}")
        await asyncio.sleep(POLL_S)
    root = probe.own_url(settings)
    base = f"{root}/v1"
    say(f"ready: {base}, and for a browser {root}/" if settings.page else f"ready: {base}")
    if not settings.is_authenticated and not settings.opens_administration:
        say(NO_ADMIN)
    if not settings.is_authenticated:
        say(f"try it:\n{curl(base, model)}")
    elif settings.api_key is not None:
        say(f"try it:\n{curl(base, model, key='API_KEY')}")
    elif settings.key_pepper is not None:
        # not API_KEY: a proxy that is started from that shell would let the key do everything
        make_key = f"export OPENAI_API_KEY=$({store.quick_key_command(settings)})"
        say(
            f"make a key, and try it, in a shell with the same {store.shell_needs(settings)}:\n"
            f"{make_key}\n{curl(base, model, key='OPENAI_API_KEY')}"
        )
    else:
        source = "JWT_ISSUER" if settings.jwt_issuer is not None else "a front that you trust"
        say(f"callers are known by {source}")


def _not_ready(settings: Settings) -> str | None:
    """What /health/ready reports as missing; None if it is ready, or answers certificates only."""
    if settings.tls_client_ca_file is not None:
        return None
    host, has_tls = probe.own_address(settings.host), settings.tls_cert_file is not None
    try:
        status, body = probe.get(host, settings.port, "/health/ready", has_tls=has_tls)
    except OSError as error:
        return str(error)
    return None if status == probe.OK else " ".join(body.split())[:300]


def curl(base: str, model: str | None, *, key: str | None = None) -> str:
    """A curl command to paste into a shell: a chat with `model`, or for None the list of models.

    Args:
        key: the variable that holds one; None where none is needed.
    """
    header = "" if key is None else f' -H "Authorization: Bearer ${key}"'
    if model is None:
        return f"curl {base}/models{header}"
    body = (
        f'{{"model": "{model}", "stream": true, '
        '"messages": [{"role": "user", "content": "Hello! Who are you?"}]}'
    )
    return (
        f"curl -N {base}/chat/completions{header} -H 'Content-Type: application/json' -d '{body}'"
    )
