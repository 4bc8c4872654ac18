"""Keeps the registry up to date by checking Triton every half second. Started by `app`.

Releases the requests that wait until Triton is ready again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from proxy.access.start_gate import StartGate
from proxy.domain.engine import Catalog, NotReady
from proxy.domain.model import ModelCard
from proxy.models.registry import Registry
from proxy.telemetry.metrics import Metrics

logger = structlog.get_logger(__name__)

CHECK_EVERY_S = 0.5
Waiter = asyncio.Future[bool]
Learn = Callable[[ModelCard], Awaitable[None]]


class RecoveryQueue:
    """Releases waiting requests, a few in each turn of the event loop.

    A readiness check releases only requests that waited before it began: a check that was already
    running when Triton died may still report it ready.
    """

    def __init__(self, gate: StartGate) -> None:
        self._gate = gate
        self._waiting: dict[Waiter, None] = {}  # in order

    async def wait(self, timeout_s: float) -> bool:
        """Whether Triton was ready within this time, by a check that began after this call."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        timer = loop.call_later(timeout_s, _settle, waiter, False)
        self._waiting[waiter] = None
        try:
            return await waiter
        finally:
            timer.cancel()
            del self._waiting[waiter]

    def waiting(self) -> tuple[Waiter, ...]:
        """The requests that a readiness check which begins now may release."""
        return tuple(waiter for waiter in self._waiting if not waiter.done())

    async def release(self, waiters: Iterable[Waiter]) -> None:
        """Lets these requests continue, because every model is ready."""
        for waiter in waiters:
            await self._gate.wait()
            _settle(waiter, True)


def _settle(waiter: Waiter, is_back: bool) -> None:
    if not waiter.done():  # its client may have disconnected
        waiter.set_result(is_back)


async def watch(
    catalog: Catalog, registry: Registry, learn: Learn, metrics: Metrics, recovery: RecoveryQueue
) -> None:
    """Checks Triton until cancelled."""
    unserved: tuple[str, ...] = ()
    while True:
        await check(catalog, registry, learn, recovery)
        unserved = _log_unserved(registry, unserved)
        metrics.ready.set(registry.why_not_ready is None or registry.is_holding)
        await asyncio.sleep(CHECK_EVERY_S)


def _log_unserved(registry: Registry, before: tuple[str, ...]) -> tuple[str, ...]:
    """Logs a change, unless nothing is ready, which `refresh` logs."""
    if registry.why_not_ready is not None or registry.away == before:
        return before
    if registry.away:
        logger.warning(
            "models without an endpoint",
            models=registry.away,
            advice="load these models on a Triton of their pool, or remove them from models.yaml",
        )
    else:
        logger.info("every model has an endpoint")
    return registry.away


async def check(
    catalog: Catalog, registry: Registry, learn: Learn, recovery: RecoveryQueue
) -> None:
    """Refreshes the registry; if Triton is ready, releases the requests that wait for it."""
    waiting = recovery.waiting()
    await refresh(catalog, registry, learn)
    if registry.why_not_ready is None:
        await recovery.release(waiting)


async def refresh(catalog: Catalog, registry: Registry, learn: Learn) -> None:
    """Checks Triton once, and logs each change of its state. learn: gets each model's card when the
    models have changed.
    """
    before, loaded = registry.why_not_ready, None
    try:
        loaded = await catalog.load()
        is_news = registry.serve(loaded)
    except NotReady as error:
        if before is None or str(error) != str(before):
            logger.warning(
                "not ready",
                reason=str(error),
                advice="look at the reason, and at Triton's log; the proxy tries again by itself",
            )
        registry.suspend(error, has_endpoints=loaded is not None)
    else:
        registry.away = registry.unserved()
        if is_news:
            for card in registry.every_card():
                await learn(card)
            logger.info("ready", models=[model.name for model in loaded])
            for name, unfit in registry.unfit.items():
                logger.error(
                    "model not served",
                    model=name,
                    reason=str(unfit),
                    advice="repair models.yaml; builds that were served before continue",
                )
