"""Settings -> the relay of answers with an Idempotency-Key, and its layer. Called by `app`."""

from __future__ import annotations

import math

import structlog

from build_engines.kv_memory import memory_bytes
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.api.bodies.body_reader import BodyReader
from proxy.api.idempotency.layer import LayerParts
from proxy.settings import Settings
from proxy.state.answer import Quotas
from proxy.state.memory_answers import MemoryRecords
from proxy.state.meters import Ledger
from proxy.state.relay import Records, Relay, RelayLimits
from proxy.telemetry.metrics import Metrics

logger = structlog.get_logger(__name__)

MB = 1_000_000
KEPT_PART, HELD_PART = 0.2, 0.25  # the most of the container's memory, or of the machine's


def within(name: str, mb: float, part: float, memory: int | None = None) -> int:
    """The setting in bytes, but at most that part of the memory; logs where that is less."""
    wanted, most = mb * MB, part * (memory or memory_bytes())
    if wanted > most:
        logger.info(
            "idempotency: the memory allows less than the setting",
            setting=name,
            mb=mb,
            used_mb=int(most / MB),
            advice="give the proxy more memory to keep more",
        )
    return int(min(wanted, most))


def _relay(settings: Settings, ledger: Ledger, metrics: Metrics) -> Relay:
    limits = RelayLimits(
        grace_s=settings.idempotency_grace_s,
        resume_grace_s=settings.resume_grace_s,
        answer_bytes=int(settings.max_kept_answer_mb * MB),
        memory_bytes=within("MAX_HELD_ANSWERS_MB", settings.max_held_answers_mb, HELD_PART),
        readers=settings.max_answer_readers,
        keeps=settings.idempotency_keep_s > 0,
    )
    return Relay(_records(settings, ledger), limits, metrics.idempotency)


def layer_parts(
    settings: Settings,
    bodies: BodyReader,
    ledger: Ledger,
    limiter: RequestLimiter,
    metrics: Metrics,
) -> LayerParts:
    return LayerParts(
        relay=_relay(settings, ledger, metrics),
        bodies=bodies,
        limiter=limiter,
        metrics=metrics.idempotency,
        is_closed=settings.ledger_outage == "closed",
    )


def _records(settings: Settings, ledger: Ledger) -> Records:
    """In the Redis of the limits, if they are in Redis; else in memory."""
    part = KEPT_PART if settings.ledger_url_value is None else math.inf
    quotas = Quotas(
        keep_s=settings.idempotency_keep_s,
        bytes=within("MAX_KEPT_MB", settings.max_kept_mb, part),
        answers=settings.max_kept_answers,
    )
    if settings.ledger_url_value is not None:
        from proxy.state.redis_answers import RedisRecords  # imports slowly
        from proxy.state.redis_meters import RedisLedger

        assert isinstance(ledger, RedisLedger)
        answer_bytes = int(settings.max_kept_answer_mb * MB)
        return RedisRecords(ledger.redis, quotas, answer_bytes=answer_bytes)
    return MemoryRecords(quotas)
