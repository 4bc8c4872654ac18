"""Gathers denied admin calls, and writes them to the audit log about every second.

A caller that is denied a thousand times a second must not keep the store busy: calls of one caller
to one object are one entry with their number, and each entry list is bounded.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from triton_openai.proxy.access.store.change_log import ChangeLog, Denial
from triton_openai.proxy.access.store.periodic import Periodic
from triton_openai.proxy.access.store.stored_text import cleaned
from triton_openai.proxy.domain.errors import ErrorCode, StoreUnavailable
from triton_openai.proxy.domain.identity import Caller

Kind = tuple[str, str, str]  # actor, object, code
logger = structlog.get_logger(__name__)

INTERVAL_S = 1.0
CLOSE_TIMEOUT_S = 5.0
KINDS_AT_ONCE = 100
NOBODY = "nobody"
OTHERS = ("several callers", "several objects", "several codes")
LONGEST = 200  # characters of an actor or an object


class DeniedCalls:
    """`async with` writes until the body ends, and then what is left."""

    def __init__(self, changes: ChangeLog, *, interval_s: float = INTERVAL_S) -> None:
        self._changes = changes
        self._rounds = Periodic(self._round, interval_s)
        self._counts: Counter[Kind] = Counter()

    def add(self, method: str, path: str, caller: Caller | None, code: ErrorCode) -> None:
        """Takes one denied call without waiting. caller: None where nobody was recognized."""
        actor = NOBODY if caller is None else cleaned(caller.key_id)
        kind = (actor[:LONGEST], cleaned(f"{method} {path}")[:LONGEST], code.value)
        is_known = kind in self._counts or len(self._counts) < KINDS_AT_ONCE
        self._counts[kind if is_known else OTHERS] += 1

    async def __aenter__(self) -> DeniedCalls:
        self._rounds.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rounds.stop()
        try:
            await asyncio.wait_for(self.flush(), CLOSE_TIMEOUT_S)
        except (StoreUnavailable, asyncio.TimeoutError) as error:
            logger.error(
                "denied calls not recorded",
                calls=self._counts.total(),
                why=str(error),
                advice="the audit log lacks these calls; look at the database that STORE_URL names",
            )

    async def flush(self) -> None:
        """Raises StoreUnavailable; the calls are then kept."""
        if not self._counts:
            return
        taken, self._counts = self._counts, Counter()
        try:
            await self._changes.denied(
                [
                    Denial(actor=actor, object=object, code=code, times=times)
                    for (actor, object, code), times in taken.items()
                ]
            )
        except BaseException:
            self._counts.update(taken)
            raise

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
            logger.exception(
                "denied calls not recorded",
                calls=self._counts.total(),
                advice="the audit log lacks these calls; look at the database that STORE_URL names",
            )
            self._counts.clear()
