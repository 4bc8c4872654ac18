"""Checks finished answers in a sandbox, since a check compiles a caller's schema.

Called by `attempts`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from weakref import WeakValueDictionary

from proxy.domain.completion import Answer
from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.language.structured.checks import Check
from proxy.language.structured.constraint_errors import too_costly


class Checker:
    """Checks one answer of a caller at a time: many choices finish together, and the sandbox
    refuses a caller that has many calls waiting.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def violation(self, check: Check, answer: Answer, caller: str) -> str | None:
        """What is wrong with the answer; None if it conforms.

        Raises:
            InvalidSchema: the check takes too much time or memory.
            RateLimited: as the sandbox.
        """
        bare = replace(answer, reasoning="", server_calls=(), log_probs=(), token_ids=())
        turn = self._turns.setdefault(caller, asyncio.Lock())
        async with turn:
            try:
                return await self._sandbox.run(caller, check.violation, bare)
            except TooCostly as error:
                raise too_costly(check.field, error, is_schema=True) from error
