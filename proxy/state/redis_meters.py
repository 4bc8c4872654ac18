"""The meters of several proxies, in Redis or Valkey. Implements meters.Ledger.

Each proxy also keeps a count of its own (`own_count`): from it, it grants its share while Redis
cannot be reached, and restores its part where Redis has lost the state. Where Redis refuses one
tenant's keys, the same holds for that tenant's requests only.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import Any

import structlog
from redis.exceptions import ResponseError
from typing_extensions import Self

from proxy import background
from proxy.state import redis_scripts
from proxy.state.memory_meters import Clock, steady_us
from proxy.state.meters import Grant, Meter, OutageMode, Refusal
from proxy.state.own_count import Change, OwnCount, SharedGrant
from proxy.state.redis_connection import FAILURES, RedisConnection, tenant_tag

logger = structlog.get_logger(__name__)

FIELDS = 3  # of each meter in an answer
REFUSED_KEYS = "delete the keys of this tenant that have another type, or find who writes them"
LOGGED_AGAIN_S = 3600


class RedisLedger:
    """Runs the connection. mode: of an outage. clock: for tests, in place of Redis' own and of this
    machine's.

    is_open: cleared while nothing may be reserved. calls: reservations that Redis has not answered.
    _unsent: changes in the outbox, and what is being sent.
    """

    def __init__(
        self, redis: RedisConnection, mode: OutageMode, *, clock: Clock | None = None
    ) -> None:
        self.redis = redis
        redis.catch_up = self._catch_up
        self._mode = mode
        self._clock = clock
        self._own = OwnCount(clock or steady_us)
        self._script = redis.meters.register_script(redis_scripts.METERS)
        self._outbox: asyncio.Queue[tuple[str, list[Change]]] = asyncio.Queue()
        self._unsent = 0
        self._sending: asyncio.Task[None] | None = None
        self._restored_at = -math.inf  # when Redis was found to have lost the state
        self._refused: dict[str, float] = {}  # when a tenant's keys were last reported
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.calls = 0

    async def __aenter__(self) -> Self:
        await self.redis.__aenter__()
        self._sending = asyncio.create_task(self._send_forever())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.flush()
        await self.drop()
        await self.redis.__aexit__(*exc_info)

    async def drop(self) -> None:
        """Ends its tasks, and tells Redis nothing."""
        await self.redis.drop()
        if self._sending is not None:
            await background.end((self._sending,))

    async def flush(self) -> None:
        """Returns when everything so far has been sent, or kept for later."""
        await self._outbox.join()

    @property
    def outage(self) -> str | None:
        return self._mode.value if self.redis.is_away else None

    @property
    def proxies(self) -> int:
        return self.redis.proxies

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        """The call is not cancelled with its caller: what it reserves is given back then."""
        if not self.is_open.is_set():
            await self.is_open.wait()
        if self.redis.is_away:
            return self._reserve_own(meters, amounts)
        self.calls += 1
        call = asyncio.ensure_future(self._reserve_once(meters, amounts))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            call.add_done_callback(self._give_back)
            raise

    def amend(self, grant: Grant, amounts: Sequence[int]) -> None:
        self._replace("amend", grant, amounts)

    def settle(self, grant: Grant, amounts: Sequence[int]) -> None:
        if not grant.is_settled:
            self._replace("settle", grant, amounts)

    def _replace(self, operation: str, grant: Grant, amounts: Sequence[int]) -> None:
        assert isinstance(grant, SharedGrant)
        if changes := self._own.change(operation, grant, amounts):
            self._send(operation, changes)

    def _reserve_own(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        return self._own.reserve(self._mode, self.proxies, meters, amounts)

    async def _reserve_once(
        self, meters: Sequence[Meter], amounts: Sequence[int]
    ) -> Grant | Refusal:
        result: Grant | Refusal | None = None
        try:
            result = await self._reserve_shared(meters, amounts)
        except FAILURES as error:
            self._fail(meters[0].tenant, error)
        finally:
            self.calls -= 1
        if result is None or self.redis.is_away:  # what has answered may be an empty state
            return self._reserve_own(meters, amounts)
        return result if isinstance(result, Refusal) else self._own.record(result)

    async def _reserve_shared(
        self, meters: Sequence[Meter], amounts: Sequence[int]
    ) -> Grant | Refusal:
        changes = [(meter, 0, 0, amount) for meter, amount in zip(meters, amounts, strict=True)]
        longest, at, *rest = await self._run("reserve", meters[0].tenant, changes)
        look = list(zip(rest[1::FIELDS], rest[2::FIELDS], strict=True)).__getitem__
        if longest:
            return Refusal(meters, at, longest, look)
        return Grant(meters, amounts, look, rest[::FIELDS])

    def _give_back(self, call: asyncio.Future[Grant | Refusal]) -> None:
        """What was reserved for a caller that was cancelled meanwhile."""
        if call.cancelled() or call.exception() is not None:
            return
        if isinstance(grant := call.result(), Grant):
            self.settle(grant, [0] * len(grant.amounts))

    def _fail(self, tenant: str, error: BaseException) -> None:
        """Logs what concerns one tenant."""
        now = asyncio.get_running_loop().time()
        is_known = now < self._refused.get(tenant, -math.inf) + LOGGED_AGAIN_S
        if isinstance(error, ResponseError) and not is_known:
            self._refused[tenant] = now
            logger.warning(
                "limits: redis refuses the keys of a tenant",
                tenant=tenant,
                error=str(error),
                advice=REFUSED_KEYS,
            )

    async def _catch_up(self, is_lost: bool) -> None:
        """Renews the leases; when Redis is back, brings it up to date. Called after each beat."""
        now = asyncio.get_running_loop().time()
        if is_lost:
            self._restored_at = now
            while self._unsent:  # all of it is counted in what is added now
                await self._outbox.join()
            await self._add(self._own.take_all())
        for tenant in by_tenant(self._own.holdings()):
            await self._try("hold", tenant, [])  # another lease for what it holds
        is_quiet = not (self.calls or self._unsent)
        is_whole = now - self._restored_at >= 2 * self.redis.beat_s  # the others restored theirs
        if is_quiet and (is_whole or not self.redis.is_away):
            await self._synchronize()

    async def _synchronize(self) -> None:
        """Adds what Redis has not got, and sets what this proxy holds. Meanwhile nothing is
        reserved, so that Redis counts each reservation once.
        """
        self.is_open.clear()
        try:
            if self.redis.is_away:
                await self.redis.reconnect()
            version = None
            while version is None or (self.redis.is_away and version != self._own.version):
                version = self._own.version
                await self._add(self._own.take_unsent())
                for tenant, held in by_tenant(self._own.holdings()).items():
                    await self._try("hold", tenant, held)
            self._own.forget_returned()
            self.redis.found()
        finally:
            self.is_open.set()

    async def _add(self, charges: Sequence[Change]) -> None:
        """What Redis does not take is kept."""
        left = by_tenant(charges)
        try:
            for tenant in list(left):
                left[tenant] = await self._try("add", tenant, left[tenant])
        finally:
            for changes in left.values():
                self._own.keep("add", changes)

    async def _try(self, operation: str, tenant: str, changes: list[Change]) -> list[Change]:
        """Returns the changes that Redis refuses: all, if it refuses the tenant."""
        try:
            return await self._changed(operation, tenant, changes)
        except ResponseError as error:
            self._fail(tenant, error)
            return changes

    def _send(self, operation: str, changes: list[Change]) -> None:
        self._unsent += 1
        self._outbox.put_nowait((operation, changes))

    async def _send_forever(self) -> None:
        """What was changed during an outage is kept, in its order."""
        while True:
            operation, changes = await self._outbox.get()
            try:
                if not self.redis.is_away:
                    await self.is_open.wait()
                if self.redis.is_away or self._own.has_unsent(changes):
                    self._own.keep(operation, changes)
                else:
                    tenant = changes[0][0].tenant
                    self._own.keep(operation, await self._changed(operation, tenant, changes))
            except FAILURES as error:
                self._own.keep(operation, changes)
                self._fail(changes[0][0].tenant, error)
            finally:
                self._unsent -= 1
                self._outbox.task_done()

    async def _changed(
        self, operation: str, tenant: str, changes: Sequence[Change]
    ) -> list[Change]:
        """For meters of one tenant; returns the changes whose keys Redis refuses."""
        return [changes[at] for at in await self._run(operation, tenant, changes)]

    async def _run(self, operation: str, tenant: str, changes: Sequence[Change]) -> Any:
        """Operations and results: see redis_scripts.METERS."""
        tag = tenant_tag(tenant)
        now = 0 if self._clock is None else self._clock()
        keys = [f"{tag}leases", *(f"{tag}{change[0].key}" for change in changes)]
        args = [operation, now, f"i:{self.redis.instance}", self.redis.lease_us]
        for meter, *counts in changes:
            args += (meter.kind.value, meter.limit, meter.span_us, meter.opening, *counts)
        return await self.redis.answered(self._script(keys, args))


def by_tenant(changes: Iterable[Change]) -> dict[str, list[Change]]:
    """The keys of one call have one hash tag."""
    grouped: dict[str, list[Change]] = {}
    for change in changes:
        grouped.setdefault(change[0].tenant, []).append(change)
    return grouped
