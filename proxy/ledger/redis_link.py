"""Keeps Redis and this proxy's own count in step, through outages. Used by `redis_ledger`."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import Sequence

import structlog
from redis.exceptions import RedisError

from proxy import background
from proxy.ledger.own_count import Change, OwnCount
from proxy.ledger.redis_state import RedisState, by_tenant

logger = structlog.get_logger(__name__)

WHILE_AWAY = "look at the server of LEDGER_URL; LEDGER_OUTAGE says what holds until it answers"

AWAY = (RedisError, OSError, asyncio.TimeoutError)


class RedisLink:
    """Renews leases, sends what is settled, and keeps it while Redis is away.

    is_away: reservations are made from `own` meanwhile. is_open: cleared while nothing may be
    reserved. calls: reservations that Redis has not answered. proxies: those last seen alive, at
    least 1.
    """

    def __init__(
        self,
        state: RedisState,
        own: OwnCount,
        beat_s: float,
    ) -> None:
        self._state = state
        self._own = own
        self._beat_s = beat_s
        self._outbox: asyncio.Queue[tuple[str, list[Change]]] = asyncio.Queue()
        self._unsent = 0  # in the outbox, and what is being sent
        self._restored_at = -math.inf  # when Redis was found to have lost the state
        self._tasks: list[asyncio.Task[None]] = []
        self.is_away = False
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.calls = 0
        self.proxies = 1

    async def start(self) -> None:
        await self._try_beat()
        self._tasks = [asyncio.create_task(self._beats()), asyncio.create_task(self._sends())]

    async def stop(self) -> None:
        await self.flush()
        await self.drop()
        with contextlib.suppress(*AWAY):
            await self._state.leave()
        await self._state.close()

    async def drop(self) -> None:
        """Ends its tasks, and tells Redis nothing."""
        await background.end(self._tasks)

    async def flush(self) -> None:
        """Returns when everything so far has been sent, or kept for later."""
        await self._outbox.join()

    def send(self, operation: str, changes: list[Change]) -> None:
        self._unsent += 1
        self._outbox.put_nowait((operation, changes))

    def lose(self, error: BaseException) -> None:
        if not self.is_away:
            logger.warning("limits: redis is away", error=str(error), advice=WHILE_AWAY)
            self.is_away = True

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            await self._try_beat()

    async def _try_beat(self) -> None:
        try:
            await self._beat()
        except AWAY as error:
            self.lose(error)

    async def _beat(self) -> None:
        """Renews the leases; when Redis is back, brings it up to date."""
        now = asyncio.get_running_loop().time()
        mark, alive = await self._state.beat(secrets.token_hex(8))
        is_lost, self._state.mark = self._state.mark not in (None, mark), mark
        if is_lost:
            advice = "look why it was restarted, or evicted keys"
            logger.warning("limits: redis has lost its state, which all restore", advice=advice)
            self.is_away = True
            self._restored_at = now
            while self._unsent:  # all of it is counted in what is added now
                await self._outbox.join()
            await self._add(self._own.take_all())
        # After an outage the others come back one by one: what they grant meanwhile are shares.
        self.proxies = max(alive, self.proxies if self.is_away else 1)
        for tenant in by_tenant(self._own.holdings()):
            await self._state.renew(tenant)
        is_quiet = not (self.calls or self._unsent)
        is_whole = now - self._restored_at >= 2 * self._beat_s  # the others have restored theirs
        if is_quiet and (is_whole or not self.is_away):
            await self._synchronize()

    async def _synchronize(self) -> None:
        """Adds what Redis has not got, and sets what this proxy holds. Meanwhile nothing is
        reserved, so that Redis counts each reservation once.
        """
        self.is_open.clear()
        try:
            if self.is_away:
                await self._state.reconnect()
            version = None
            while version is None or (self.is_away and version != self._own.version):
                version = self._own.version
                await self._add(self._own.take_unsent())
                for held in by_tenant(self._own.holdings()).values():
                    await self._state.hold(held)
            self._own.forget_returned()
            if self.is_away:
                self.is_away = False
                logger.info("limits: redis is back", proxies=self.proxies)
        finally:
            self.is_open.set()

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

    async def _sends(self) -> None:
        """What was changed during an outage is kept, in its order."""
        while True:
            operation, changes = await self._outbox.get()
            try:
                if not self.is_away:
                    await self.is_open.wait()
                if self.is_away:
                    self._own.keep(operation, changes)
                else:
                    await self._state.change(operation, changes)
            except AWAY as error:
                self._own.keep(operation, changes)
                self.lose(error)
            finally:
                self._unsent -= 1
                self._outbox.task_done()
