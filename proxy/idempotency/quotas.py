"""How much is kept of finished answers, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from build_engines.kv_memory import memory_bytes

logger = structlog.get_logger(__name__)

MB = 1_000_000
KEPT_PART, HELD_PART = 0.2, 0.25  # the most of the container's memory, or of the machine's
MOST_HELD = 256 * MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """keep_s: for how long. bytes: of all kept answers. answers: of one tenant."""

    keep_s: float
    bytes: int
    answers: int = 10_000


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


def held_bytes(memory: int | None = None) -> int:
    """The most of all answers that are in memory while they are generated or read."""
    return int(min(MOST_HELD, HELD_PART * (memory or memory_bytes())))
