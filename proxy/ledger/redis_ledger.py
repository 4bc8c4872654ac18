"""The ledger of several hosts, in Redis or Valkey. Implements port.Ledger.

Each proxy also keeps a count of its own (`own_count`): from it, it grants its share while Redis
cannot be reached, and restores its part where Redis has lost the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable, Sequence

import structlog
from redis.exceptions import RedisError
from typing_extensions import Self

from triton_openai.proxy.ledger.in_process import Clock, steady_us
from triton_openai.proxy.ledger.outage import OutageMode
from triton_openai.proxy.ledger.own_count import Change, OwnCount, SharedGrant
from triton_openai.proxy.ledger.port import Grant, Meter, Refusal
from triton_openai.proxy.ledger.redis_state import RedisState, by_tenant

logger = structlog.get_logger(__name__)

LEASE_S = 10.0
BEAT_S = 2.0
AWAY = (RedisError, OSError, asyncio.TimeoutError)


class RedisLedger:
    """mode: of an outage. on_outage: called when one begins and ends.

    lease_s: how long Redis keeps what this proxy holds after it was last heard of. clock: for
    tests, in place of Redis' own and of this machine's.
    """

    def __init__(
        self,
        url: str,
        mode: OutageMode,
        *,
        timeout_s: float = 0.25,
        beat_s: float = BEAT_S,
        lease_s: float = LEASE_S,
        clock: Clock | None = None,
        on_outage: Callable[[bool], None] = lambda is_away: None,
    ) -> None:
        self._state = RedisState(
            url,
            secrets.token_hex(8),
            lease_us=int(lease_s * 1e6),
            timeout_s=timeout_s,
            clock=clock,
        )
        self._mode = mode
        self._beat_s = beat_s
        self._on_outage = on_outage
        self._own = OwnCount(clock or steady_us)
        self._outbox: asyncio.Queue[tuple[str, list[Change]]] = asyncio.Queue()
        self._mark: bytes | None = None
        self._proxies = 1
        self._is_away = False
        self._restored_at = -math.inf  # when Redis was found to have lost the state
        self._calls = 0  # reservations that Redis has not answered
        self._outbox_length = 0  # and what is being sent
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._try_beat()
        self._on_outage(self._is_away)
        self._tasks = [asyncio.create_task(self._beats()), asyncio.create_task(self._sends())]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.flush()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(*AWAY):
            await self._state.leave()
        await self._state.close()

    @property
    def outage(self) -> str | None:
        return self._mode.value if self._is_away else None

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        """The call is not cancelled with its caller: what it reserves must be given back."""
        if not self._is_open.is_set():
            await self._is_open.wait()
        if self._is_away:
            return self._own.reserve(self._mode, self._proxies, meters, amounts)
        self._own.hold(meters, amounts)
        self._calls += 1
        call = asyncio.ensure_future(self._state.reserve(meters, amounts))
        call.add_done_callback(self._end_call)
        try:
            result = await asyncio.shield(call)
        except asyncio.CancelledError:
            call.add_done_callback(lambda done: self._drop(done, meters, amounts))
            raise
        except AWAY as error:
            self._own.hold(meters, amounts, -1)
            self._lose(error)
            return self._own.reserve(self._mode, self._proxies, meters, amounts)
        if isinstance(result, Refusal):
            self._own.hold(meters, amounts, -1)
            return result
        return self._own.record(result)

    def amend(self, grant: Grant, amounts: Sequence[int]) -> None:
        self._change("amend", grant, amounts)

    def settle(self, grant: Grant, amounts: Sequence[int]) -> None:
        if not grant.is_settled:
            self._change("settle", grant, amounts)

    def _change(self, operation: str, grant: Grant, amounts: Sequence[int]) -> None:
        assert isinstance(grant, SharedGrant)
        if changes := self._own.change(operation, grant, amounts):
            self._send(operation, changes)

    def _end_call(self, _: object) -> None:
        self._calls -= 1

    def _drop(
        self,
        call: asyncio.Future[Grant | Refusal],
        meters: Sequence[Meter],
        amounts: Sequence[int],
    ) -> None:
        """Gives back what was reserved for a caller that was cancelled meanwhile."""
        self._own.hold(meters, amounts, -1)
        if call.cancelled():
            return
        if (error := call.exception()) is not None:
            self._lose(error)
        elif isinstance(grant := call.result(), Grant):
            marked = zip(meters, grant.marks, amounts, [0] * len(meters), strict=True)
            self._send("settle", list(marked))

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            await self._try_beat()

    async def _try_beat(self) -> None:
        try:
            await self._beat()
        except AWAY as error:
            self._lose(error)

    async def _beat(self) -> None:
        """Renews the leases; when Redis is back, brings it up to date."""
        now = asyncio.get_running_loop().time()
        mark, self._proxies = await self._state.beat(secrets.token_hex(8))
        is_lost, self._mark = self._mark not in (None, mark), mark
        if is_lost:
            logger.warning("limits: redis has lost its state, which all proxies restore")
            self._begin_outage()
            self._restored_at = now
            await self._outbox.join()  # all of it is counted in what is added now
            await self._add(self._own.take_all())
        for tenant in by_tenant(self._own.holdings()):
            await self._state.renew(tenant)
        is_quiet = not (self._calls or self._outbox_length)
        is_whole = now - self._restored_at >= 2 * self._beat_s  # the others have restored theirs
        if is_quiet and (is_whole or not self._is_away):
            await self._synchronize()

    async def _synchronize(self) -> None:
        """Adds what Redis has not got, and sets what this proxy holds. Meanwhile nothing is
        reserved, so that Redis counts each reservation once.
        """
        self._is_open.clear()
        try:
            version = -1
            while (self._is_away and version != self._own.version) or version == -1:
                version = self._own.version
                await self._add(self._own.take_unsent())
                for held in by_tenant(self._own.holdings()).values():
                    await self._state.hold(held)
            self._own.forget_returned()
            if self._is_away:
                self._is_away = False
                logger.info("limits: redis is back", proxies=self._proxies)
                self._on_outage(False)
        finally:
            self._is_open.set()

    async def _add(self, charges: Sequence[Change]) -> None:
        tenants = list(by_tenant(charges).values())
        while tenants:
            try:
                await self._state.change("add", tenants[-1])
            except AWAY:
                for tenant in tenants:
                    self._own.keep("settle", tenant)
                raise
            tenants.pop()

    async def flush(self) -> None:
        """Returns when everything so far has been sent, or kept for later."""
        await self._outbox.join()

    async def _sends(self) -> None:
        """What was changed during an outage is kept, in its order; nothing is sent meanwhile."""
        while True:
            operation, changes = await self._outbox.get()
            try:
                if not self._is_away:
                    await self._is_open.wait()
                if self._is_away:
                    self._own.keep(operation, changes)
                else:
                    await self._state.change(operation, changes)
            except AWAY as error:
                self._own.keep(operation, changes)
                self._lose(error)
            finally:
                self._outbox_length -= 1
                self._outbox.task_done()

    def _send(self, operation: str, changes: list[Change]) -> None:
        self._outbox_length += 1
        self._outbox.put_nowait((operation, changes))

    def _lose(self, error: BaseException) -> None:
        if not self._is_away:
            logger.warning("limits: redis is away", error=str(error), mode=self._mode.value)
            self._begin_outage()

    def _begin_outage(self) -> None:
        if not self._is_away:
            self._is_away = True
            self._on_outage(True)
