"""Prints when the proxy is ready, and until then what it waits for. Called by `run`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from proxy.api.http.authentication import NO_ADMIN
from proxy.operate.triton_server import probe
from proxy.settings import Settings

POLL_S = 0.25
REMIND_POLLS = 40
Say = Callable[[str], None]


@asynccontextmanager
async def running(settings: Settings, model: str | None, say: Say) -> AsyncIterator[None]:
    """Announces while the body runs. model: the one in the printed curl command."""
    announcing = asyncio.create_task(_announce(settings, model, say))
    try:
        yield
    finally:
        announcing.cancel()


async def _announce(settings: Settings, model: str | None, say: Say) -> None:
    """Waits for readiness, printing reminders; then prints how to send a request."""
    host, has_tls = _reachable(settings.host), settings.tls_cert_file is not None
    polls = 0
    while waits_for := await _not_ready(host, settings):
        polls += 1
        if polls % REMIND_POLLS == 0:
            say(f"not ready yet: {waits_for}")
        await asyncio.sleep(POLL_S)
    scheme, name = "https" if has_tls else "http", f"[{host}]" if ":" in host else host
    base = f"{scheme}://{name}:{settings.port}/v1"
    say(f"ready: {base}")
    if not settings.is_authenticated and not settings.opens_administration:
        say(f"{NO_ADMIN} (docs/access.md)")
    say(f"try it:\n{curl(base, model, needs_key=settings.is_authenticated)}")


async def _not_ready(host: str, settings: Settings) -> str | None:
    """What /health/ready reports as missing; None if it is ready, or answers certificates only."""
    if settings.tls_client_ca_file is not None:
        return None
    has_tls = settings.tls_cert_file is not None
    try:
        status, body = await probe.get(host, settings.port, "/health/ready", has_tls=has_tls)
    except OSError as error:
        return str(error)
    return None if status == 200 else " ".join(body.split())[:300]


def curl(base: str, model: str | None, *, needs_key: bool = False) -> str:
    """A curl command to paste into a shell: a chat with `model`, or for None the list of models."""
    key = ' -H "Authorization: Bearer $API_KEY"' if needs_key else ""
    if model is None:
        return f"curl {base}/models{key}"
    body = (
        f'{{"model": "{model}", "stream": true, '
        '"messages": [{"role": "user", "content": "Hello! Who are you?"}]}'
    )
    return f"curl -N {base}/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'"


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
