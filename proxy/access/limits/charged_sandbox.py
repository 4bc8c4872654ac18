"""A sandbox whose wasted time counts in the caller's limits on requests. Made by `app`.

A request that is refused by a call, or after one, has taken CPU, up to seconds where the call was
ended at the sandbox's limits. It counts as one that was served, so that limits bound it as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from cachetools import TLRUCache

from proxy.access.limits.caller_meters import MOST, Standings
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.domain.errors import LimitsUnavailable, RateLimited, RequestError
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
        self._refused: TLRUCache[tuple[str, str], tuple[float, RateLimited]] = TLRUCache(
            MOST, lambda _, refused, __: refused[0], timer=clock
        )

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
        if (known := self._refused.get((who.tenant, who.key_id))) is not None:
            ends_at, refusal = known
            raise RateLimited(
                refusal.message,
                retry_after_s=ends_at - self._refused.timer(),
                code=refusal.code,
                limit=refusal.limit,
            )
        call = self._sandbox.run(caller, function, *args, **kwargs)
        running = asyncio.ensure_future(self._charged(who, call))
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(running)  # charged also if the client disconnects

    async def _charged(self, who: Caller, call: Coroutine[Any, Any, Result]) -> Result:
        standings: Standings = running_record().standings or Standings()  # a WebSocket has none
        try:
            result = await call
        except (TooCostly, RequestError) as error:
            if isinstance(error, RateLimited):
                raise  # it did not run
            await self.count(who, standings)
            raise
        standings.is_costly = True
        return result

    async def count(self, who: Caller, standings: Standings) -> None:
        """Counts a refused request, unless it is counted already."""
        standings.is_costly = True
        if standings.is_counted:
            return
        try:
            async with self._limiter.counted(who, standings):
                pass
        except RateLimited as refusal:
            ends_at = self._refused.timer() + refusal.retry_after_s
            self._refused[who.tenant, who.key_id] = (ends_at, refusal)
        except LimitsUnavailable:
            pass  # the next request is refused for it
