"""Notices changes of keys and tenants, made by any process. Run by the authenticator.

Requests never wait for it: they only read whether the store has answered lately.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import structlog

from proxy.domain.key_records import KeySource

POLL_S = 0.25
READ_TIMEOUT_S = 2.0

logger = structlog.get_logger(__name__)


class GenerationWatch:
    """Calls `changed` when the source's generation has grown.

    trust_s: how long what is known stays trusted after the source last answered. report: gets
    whether the source answers, after each read.
    """

    def __init__(
        self,
        source: KeySource,
        changed: Callable[[], None],
        *,
        clock: Callable[[], float],
        trust_s: float,
        report: Callable[[bool], None],
    ) -> None:
        self._source = source
        self._changed = changed
        self._clock = clock
        self._trust_s = trust_s
        self._report = report
        self._generation: int | None = None
        self._answered_at = -math.inf
        self.answers = True

    def is_trusted(self) -> bool:
        """Whether what is known may be used: the source has answered within trust_s."""
        return self._clock() - self._answered_at <= self._trust_s

    async def run(self) -> None:
        while True:
            await self.check()
            await asyncio.sleep(POLL_S)

    async def check(self) -> None:
        """Reads the generation once."""
        began = self._clock()
        try:
            generation = await asyncio.wait_for(self._source.generation(), READ_TIMEOUT_S)
        except Exception as error:  # any failure ends the trust in what is known, after trust_s
            self._note(answers=False, why=repr(error))
            return
        if generation != self._generation or not self.is_trusted():
            self._generation = generation
            self._changed()
        self._answered_at = began
        self._note(answers=True)

    def _note(self, *, answers: bool, why: str = "") -> None:
        if answers != self.answers:
            if answers:
                logger.info("keys can be read again")
            else:
                logger.error(
                    "keys cannot be read",
                    detail=why,
                    known_keys_work_s=self._trust_s,
                    advice="look at the database that STORE_URL names, before the known keys end",
                )
        self.answers = answers
        self._report(answers)
