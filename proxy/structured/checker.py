"""Checks finished answers in a sandbox, since a check compiles a caller's schema.

Used by `attempts`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from weakref import WeakValueDictionary

from triton_openai.proxy.domain.completion import Answer
from triton_openai.proxy.domain.sandbox import Sandbox, TooCostly
from triton_openai.proxy.structured.checks import Check
from triton_openai.proxy.structured.examiner import too_costly


class Checker:
    """The answers of one caller wait here for each other: many choices finish at the same time,
    and a sandbox refuses a caller with many calls waiting.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def violation(self, check: Check, answer: Answer, caller: str) -> str | None:
        """What is wrong with the answer; None where it conforms.

        Raises:
            InvalidSchema: it takes too much time or memory to check.
            RateLimited: as the sandbox.
        """
        bare = replace(answer, reasoning="", server_calls=(), log_probs=(), token_ids=())
        turn = self._turns.setdefault(caller, asyncio.Lock())
        async with turn:
            try:
                return await self._sandbox.run(caller, check.of, bare)
            except TooCostly as error:
                raise too_costly(check.field, error, is_schema=True) from error
