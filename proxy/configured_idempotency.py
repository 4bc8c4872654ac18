"""Settings -> the relay of answers with an Idempotency-Key, and its layer. Called by `app`."""

from __future__ import annotations

import math

import structlog

from build_engines.kv_memory import memory_bytes
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.idempotency import LayerParts
from proxy.idempotency.memory_records import MemoryRecords
from proxy.idempotency.port import Records
from proxy.idempotency.quotas import Quotas
from proxy.idempotency.relay import Relay, RelayLimits
from proxy.settings import Settings
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


def _relay(settings: Settings, metrics: Metrics) -> Relay:
    limits = RelayLimits(
        grace_s=settings.idempotency_grace_s,
        resume_grace_s=settings.resume_grace_s,
        answer_bytes=int(settings.max_kept_answer_mb * MB),
        memory_bytes=within("MAX_HELD_ANSWERS_MB", settings.max_held_answers_mb, HELD_PART),
        readers=settings.max_answer_readers,
        keeps=settings.idempotency_keep_s > 0,
    )
    return Relay(_records(settings), limits, metrics.idempotency)


def layer_parts(
    settings: Settings,
    bodies: BodyReader,
    limiter: RequestLimiter,
    metrics: Metrics,
) -> LayerParts:
    return LayerParts(
        relay=_relay(settings, metrics),
        bodies=bodies,
        limiter=limiter,
        metrics=metrics.idempotency,
        is_closed=settings.ledger_outage == "closed",
    )


def _records(settings: Settings) -> Records:
    part = KEPT_PART if settings.ledger_url_value is None else math.inf
    quotas = Quotas(
        keep_s=settings.idempotency_keep_s,
        bytes=within("MAX_KEPT_MB", settings.max_kept_mb, part),
        answers=settings.max_kept_answers,
    )
    if settings.ledger_url_value is not None:
        from proxy.idempotency.redis_records import RedisRecords  # imports slowly

        return RedisRecords(
            settings.ledger_url_value,
            quotas,
            answer_bytes=int(settings.max_kept_answer_mb * MB),
            timeout_s=settings.ledger_timeout_ms / 1000,
        )
    return MemoryRecords(quotas)
