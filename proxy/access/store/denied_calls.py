"""Gathers denied admin calls, and writes them to the audit log about every second.

A caller that is denied a thousand times a second must not keep the store busy: calls of one caller
to one object are one entry with their number, and each entry list is bounded. The log is never
shortened, so that callers without a key, who choose objects freely, have one entry a minute.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable

import structlog

from proxy.access.store.audit_log import AuditLog
from proxy.access.store.database import cleaned
from proxy.background import Periodic
from proxy.domain.errors import ErrorCode, StoreUnavailable
from proxy.domain.identity import Caller
from proxy.telemetry.logs import redacted

Kind = tuple[str, str, str]  # actor, object, code
logger = structlog.get_logger(__name__)

INTERVAL_S = 1.0
NOBODYS_INTERVAL_S = 60.0
CLOSE_TIMEOUT_S = 5.0
KINDS_AT_ONCE = 100
OTHERS = ("several callers", "several objects", "several codes")
NOBODY = ("nobody", "several objects", "several codes")
LONGEST = 200  # characters of an actor or an object
LOST = "the audit log lacks these calls; look at the database that STORE_URL names"


class DeniedCalls:
    """`async with` writes until the body ends, and then what is left. clock: monotonic seconds."""

    def __init__(self, audit: AuditLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._rounds = Periodic(self._round, INTERVAL_S)
        self._counts: Counter[Kind] = Counter()
        self._clock = clock
        self._nobody_was_written_at = -math.inf

    def add(self, method: str, path: str, caller: Caller | None, code: ErrorCode) -> None:
        """Takes one denied call without waiting. caller: None where nobody was recognized."""
        if caller is None:
            self._counts[NOBODY] += 1
            return
        object = redacted(cleaned(f"{method} {path}"))[:LONGEST]
        kind = (cleaned(caller.key_id)[:LONGEST], object, code.value)
        is_known = kind in self._counts or len(self._counts) < KINDS_AT_ONCE
        self._counts[kind if is_known else OTHERS] += 1

    async def __aenter__(self) -> DeniedCalls:
        self._rounds.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rounds.stop()
        try:
            self._nobody_was_written_at = -math.inf
            await asyncio.wait_for(self.flush(), CLOSE_TIMEOUT_S)
        except (StoreUnavailable, asyncio.TimeoutError) as error:
            calls = self._counts.total()
            logger.error("denied calls not recorded", calls=calls, why=str(error), advice=LOST)

    async def flush(self) -> None:
        """Writes all but what nobody has called, if that was written less than a minute ago.

        Raises StoreUnavailable; the calls are then kept.
        """
        taken, self._counts = self._counts, Counter()
        now = self._clock()
        if now - self._nobody_was_written_at < NOBODYS_INTERVAL_S and NOBODY in taken:
            self._counts[NOBODY] = taken.pop(NOBODY)
        if not taken:
            return
        try:
            await self._audit.add(
                [
                    (actor, "denied", object, None, {"code": code, "times": times})
                    for (actor, object, code), times in taken.items()
                ]
            )
        except BaseException:
            self._counts.update(taken)
            raise
        if NOBODY in taken:
            self._nobody_was_written_at = now

    async def _round(self) -> None:
        try:
            await self.flush()
        except StoreUnavailable as error:
            logger.warning(
                "denied calls cannot be recorded yet",
                detail=error.detail,
                advice="look at the database that STORE_URL names; they are recorded when it "
                "answers",
            )
        except Exception:  # the database refuses the entries: another try would not help
            calls = self._counts.total()
            logger.exception("denied calls not recorded", calls=calls, advice=LOST)
            self._counts.clear()
