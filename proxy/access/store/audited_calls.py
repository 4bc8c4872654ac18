"""Gathers admin calls that change nothing, and writes them to the audit log about every second:
those that were denied, and reads of keys and usage.

The log is never shortened, and callers choose paths freely. So the denied calls of one caller with
one code, and one caller's reads of one object, are one entry at once and then one in ten minutes,
with their number and the path of the first. Within that time, callers after the first hundred share
one entry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from proxy.access.store.audit_log import AuditLog, Entry
from proxy.access.store.database import cleaned
from proxy.background import Periodic
from proxy.domain.errors import ErrorCode, StoreUnavailable
from proxy.domain.identity import Caller
from proxy.telemetry.logs import redacted

Kind = tuple[str, str, str]  # action, actor, and the code of a refusal or the object of a read
logger = structlog.get_logger(__name__)

ROUND_S = 1.0
INTERVAL_S = 600.0  # between two entries of a kind
DENIED, READ = "denied", "read"
NOBODY, OTHERS = "nobody", "several callers"
CLOSE_TIMEOUT_S = 5.0
KINDS_AT_ONCE = 100  # of each action
LONGEST = 200  # characters of an actor or an object
LOST = "the audit log lacks these calls; look at the database that STORE_URL names"


@dataclass(slots=True)
class Calls:
    """times: since the last entry. object: of the first of them. quiet_until_s: by the clock."""

    times: int = 0
    object: str = ""
    quiet_until_s: float = 0.0


class AuditedCalls:
    """`async with` writes until the body ends, and then what is left. clock: monotonic seconds."""

    def __init__(self, audit: AuditLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._rounds = Periodic(self._round, ROUND_S)
        self._kinds: dict[Kind, Calls] = {}
        self._clock = clock

    def denied(self, method: str, path: str, caller: Caller | None, code: ErrorCode) -> None:
        """Takes one call without waiting. caller: None where nobody was recognized."""
        actor = NOBODY if caller is None else cleaned(caller.key_id)[:LONGEST]
        self._add((DENIED, actor, code.value), f"{method} {path}")

    def read(self, actor: str, object: str) -> None:
        """Takes one call without waiting. object: one of few names."""
        self._add((READ, cleaned(actor)[:LONGEST], object), object)

    def _add(self, kind: Kind, object: str) -> None:
        action = kind[0]
        known = self._kinds
        if kind not in known and sum(each == action for each, *_ in known) >= KINDS_AT_ONCE:
            kind, object = (action, OTHERS, "several codes"), "several objects"
        calls = self._kinds.setdefault(kind, Calls())
        if not calls.times:
            calls.object = redacted(cleaned(object))[:LONGEST]
        calls.times += 1

    @property
    def _waiting(self) -> int:
        return sum(calls.times for calls in self._kinds.values())

    async def __aenter__(self) -> AuditedCalls:
        self._rounds.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rounds.stop()
        try:
            for calls in self._kinds.values():
                calls.quiet_until_s = 0.0
            await asyncio.wait_for(self.flush(), CLOSE_TIMEOUT_S)
        except (StoreUnavailable, asyncio.TimeoutError) as error:
            waiting = self._waiting
            logger.error("admin calls not recorded", calls=waiting, why=str(error), advice=LOST)

    async def flush(self) -> None:
        """Writes the calls. A kind waits until its interval since its last entry has passed.

        Raises StoreUnavailable; the calls are then kept.
        """
        now = self._clock()
        self._kinds = {
            kind: calls
            for kind, calls in self._kinds.items()
            if calls.times or calls.quiet_until_s > now
        }
        taken = [
            (kind, calls, calls.object, calls.times)
            for kind, calls in self._kinds.items()
            if calls.times and calls.quiet_until_s <= now
        ]
        if not taken:
            return
        for _, calls, *_ in taken:
            calls.times, calls.quiet_until_s = 0, now + INTERVAL_S
        try:
            await self._audit.add([_entry(kind, object, n) for kind, _, object, n in taken])
        except BaseException:
            for _, calls, object, times in taken:
                calls.times, calls.object = calls.times + times, object
                calls.quiet_until_s = now
            raise

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
            logger.exception("admin calls not recorded", calls=self._waiting, advice=LOST)
            self._kinds.clear()


def _entry(kind: Kind, object: str, times: int) -> Entry:
    action, actor, code = kind
    details = {"times": times} if action == READ else {"code": code, "times": times}
    return (actor, action, object, None, details)
