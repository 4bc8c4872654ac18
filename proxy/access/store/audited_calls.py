"""Gathers admin calls that change nothing, and writes them to the audit log about every second:
those that were denied, and reads of keys and usage.

A caller that is denied a thousand times a second must not keep the store busy: calls of one caller
to one object are one entry with their number, and each entry list is bounded. The log is never
shortened, so that callers without a key, who choose objects freely, have one entry a minute, and
programs that poll one in ten minutes.
"""

from __future__ import annotations

import asyncio
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

Kind = tuple[str, str, str, str]  # actor, action, object, code
logger = structlog.get_logger(__name__)

INTERVAL_S = 1.0
NOBODYS_INTERVAL_S, READS_INTERVAL_S = 60.0, 600.0  # between two entries of a kind
DENIED, READ = "denied", "read"
CLOSE_TIMEOUT_S = 5.0
KINDS_AT_ONCE = 100
OTHERS = ("several callers", DENIED, "several objects", "several codes")
OTHER_READS = ("several callers", READ, "several objects", "")
NOBODY = ("nobody", DENIED, "several objects", "several codes")
LONGEST = 200  # characters of an actor or an object
LOST = "the audit log lacks these calls; look at the database that STORE_URL names"


class AuditedCalls:
    """`async with` writes until the body ends, and then what is left. clock: monotonic seconds."""

    def __init__(self, audit: AuditLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._rounds = Periodic(self._round, INTERVAL_S)
        self._counts: Counter[Kind] = Counter()
        self._clock = clock
        self._quiet_until: dict[Kind, float] = {}

    def denied(self, method: str, path: str, caller: Caller | None, code: ErrorCode) -> None:
        """Takes one call without waiting. caller: None where nobody was recognized."""
        if caller is None:
            self._counts[NOBODY] += 1
            return
        object = redacted(cleaned(f"{method} {path}"))[:LONGEST]
        self._add((cleaned(caller.key_id)[:LONGEST], DENIED, object, code.value), OTHERS)

    def read(self, actor: str, object: str) -> None:
        """Takes one call without waiting. object: one of few names."""
        self._add((cleaned(actor)[:LONGEST], READ, object, ""), OTHER_READS)

    def _add(self, kind: Kind, others: Kind) -> None:
        is_known = kind in self._counts or len(self._counts) < KINDS_AT_ONCE
        self._counts[kind if is_known else others] += 1

    async def __aenter__(self) -> AuditedCalls:
        self._rounds.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rounds.stop()
        try:
            self._quiet_until.clear()
            await asyncio.wait_for(self.flush(), CLOSE_TIMEOUT_S)
        except (StoreUnavailable, asyncio.TimeoutError) as error:
            calls = self._counts.total()
            logger.error("admin calls not recorded", calls=calls, why=str(error), advice=LOST)

    async def flush(self) -> None:
        """Writes the calls. A kind waits until its interval since its last entry has passed.

        Raises StoreUnavailable; the calls are then kept.
        """
        now = self._clock()
        self._quiet_until = {
            kind: until for kind, until in self._quiet_until.items() if until > now
        }
        held = Counter({each: self._counts[each] for each in self._quiet_until})
        taken, self._counts = self._counts - held, +held
        if not taken:
            return
        try:
            await self._audit.add(
                [
                    (actor, action, object, None, {**({"code": code} if code else {}), "times": n})
                    for (actor, action, object, code), n in taken.items()
                ]
            )
        except BaseException:
            self._counts.update(taken)
            raise
        for kind in taken:
            if kind == NOBODY:
                self._quiet_until[kind] = now + NOBODYS_INTERVAL_S
            elif kind[1] == READ:
                self._quiet_until[kind] = now + READS_INTERVAL_S

    async def _round(self) -> None:
        try:
            await self.flush()
        except StoreUnavailable as error:
            logger.warning(
                "admin calls cannot be recorded yet",
                detail=error.detail,
                advice="look at the database that STORE_URL names; they are recorded when it "
                "answers",
            )
        except Exception:  # the database refuses the entries: another try would not help
            calls = self._counts.total()
            logger.exception("admin calls not recorded", calls=calls, advice=LOST)
            self._counts.clear()
