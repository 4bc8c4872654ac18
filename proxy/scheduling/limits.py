"""How many streams may wait in one queue, and for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass

from proxy.settings.streams import Scheduling

WAITING_A_STREAM = 16
MOST_WAITING = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Of each queue by itself. Streams that have begun are not counted and never refused.

    waiting: of all tenants together. waiting_a_stream: in its place, so many for each stream that
    the queue may run. waiting_per_tenant: of one tenant, in all classes together.
    fair_preemption: a tenant below its share of the rows may take one of a tenant above it.
    longest_wait_s: of a stream without a `patience_s`, and the most that `patience_s` can ask for.

    Raises:
        ValueError: a limit is negative, or the longest wait is not finite.
    """

    waiting: int = 2_000
    waiting_a_stream: int | None = None
    waiting_per_tenant: int = 500
    longest_wait_s: float = 60.0
    fair_preemption: bool = False

    def __post_init__(self) -> None:
        for name in ("waiting", "waiting_per_tenant"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 0 or more")
        if not 0 <= self.longest_wait_s < math.inf:
            raise ValueError(f"longest_wait_s is {self.longest_wait_s}: it must be finite, from 0")

    @classmethod
    def of(cls, settings: Scheduling) -> QueueLimits:
        waiting = settings.queue_length
        return cls(
            waiting=MOST_WAITING if waiting is None else waiting,
            waiting_a_stream=WAITING_A_STREAM if waiting is None else None,
            waiting_per_tenant=MOST_WAITING,
            longest_wait_s=settings.queue_timeout_s,
            fair_preemption=settings.fair_preemption,
        )

    def places(self, capacity: int | None) -> int:
        """Of a queue that may run so many streams."""
        if self.waiting_a_stream is None or capacity is None:
            return self.waiting
        return self.waiting_a_stream * capacity
