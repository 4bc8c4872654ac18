"""A sandbox whose wasted time counts in the caller's limits on requests. Made by `app`.

A call that is ended at the sandbox's limits has taken seconds of CPU for a request that is then
refused. Such a request counts as one that was served, so that its limits bound it as well.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from proxy.access.limits.caller_meters import Standings
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.domain.errors import LimitsUnavailable, RateLimited
from proxy.domain.identity import Caller, current_caller
from proxy.domain.record import running_record
from proxy.domain.sandbox import Sandbox, TooCostly

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ChargedSandbox:
    """Implements domain.sandbox.Sandbox.

    Generations use it before their limits are checked. A caller whose limits were used up when a
    call of it was charged makes no further call until they are free again. clock: seconds.
    """

    def __init__(
        self, sandbox: Sandbox, limiter: RequestLimiter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sandbox = sandbox
        self._limiter = limiter
        self._clock = clock
        self._refused: dict[tuple[str, str], tuple[float, RateLimited]] = {}

    async def start(self) -> None:
        await self._sandbox.start()

    async def run(
        self,
        caller: str,
        function: Callable[Arguments, Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        who = current_caller.get()
        if not who.has_limits:
            return await self._sandbox.run(caller, function, *args, **kwargs)
        self._check(who)
        call = self._sandbox.run(caller, function, *args, **kwargs)
        running = asyncio.ensure_future(self._charged(who, call))
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(running)  # charged also if the client disconnects

    async def _charged(self, who: Caller, call: Coroutine[Any, Any, Result]) -> Result:
        try:
            return await call
        except TooCostly:
            await self._charge(who)
            raise

    def _check(self, who: Caller) -> None:
        ends_at, refusal = self._refused.get((who.tenant, who.key_id), (-math.inf, None))
        if refusal is not None and (left_s := ends_at - self._clock()) > 0:
            raise RateLimited(
                refusal.message, retry_after_s=left_s, code=refusal.code, limit=refusal.limit
            )

    async def _charge(self, who: Caller) -> None:
        standings: Standings | None = running_record().standings
        if standings is None:  # a WebSocket's
            standings = Standings()
        standings.is_costly = True
        if standings.is_counted:
            return
        try:
            async with self._limiter.counted(who, standings):
                pass
        except RateLimited as refusal:
            now = self._clock()
            known = {key: one for key, one in self._refused.items() if one[0] > now}
            ends_at = now + refusal.retry_after_s
            self._refused = {**known, (who.tenant, who.key_id): (ends_at, refusal)}
        except LimitsUnavailable:
            pass  # the next request is refused for it
