"""One proxy's connections to Redis or Valkey, and the one place that knows whether Redis is away.

Run by `redis_meters`; `redis_answers` uses the same one. Its beats renew this proxy's presence, and
find out whether Redis answers and still has its state. All keys begin with PREFIX.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog
from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import MaxConnectionsError, RedisError, ResponseError
from typing_extensions import Self

from proxy import background
from proxy.state import redis_scripts

logger = structlog.get_logger(__name__)

PREFIX = "triton-openai:"
MARK, INSTANCES = f"{PREFIX}{{all}}:mark", f"{PREFIX}{{all}}:instances"
ANSWERS, RESPONSES = f"{PREFIX}{{idempotency}}:", f"{PREFIX}{{responses}}:"
METER_CONNECTIONS = 16
ANSWER_CONNECTIONS = 64
READERS = 512  # each reader of another proxy's answer waits on one
BLOCK_MS = 1000  # how long a reader waits for more
LEASE_S = 10.0
BEAT_S = 2.0
WHILE_AWAY = "look at the server of LEDGER_URL; LEDGER_OUTAGE says what holds until it answers"

FAILURES = (RedisError, OSError, asyncio.TimeoutError)
# They concern one command: its key has another type, say, or one pool has no connection left.
# Where Redis refuses everything, it refuses the next beat, too.
OF_ONE_COMMAND = (ResponseError, MaxConnectionsError)


def tenant_tag(tenant: str) -> str:
    """How a tenant's keys begin. The braces make them all one slot of a cluster."""
    return f"{PREFIX}{{{tenant}}}:"


class RedisConnection:
    """is_away: Redis does not answer, or is not up to date since it came back. proxies: those last
    seen alive, at least 1. catch_up: called after each beat with whether Redis has lost its state;
    calls `found` where all is well.

    meters: fails on a Redis that has started again without its data, which would grant everything
    once more. Beats have a connection of their own, which sees the other state.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        beat_s: float = BEAT_S,
        lease_s: float = LEASE_S,
    ) -> None:

        def client(pool: type[redis.ConnectionPool], most: int, **options: Any) -> Any:
            options = {
                "socket_timeout": timeout_s,
                "socket_connect_timeout": timeout_s,
                "retry": Retry(NoBackoff(), 0),
                **options,
            }
            return redis.Redis.from_pool(pool.from_url(url, max_connections=most, **options))

        waiting = partial(client, redis.BlockingConnectionPool, timeout=timeout_s)
        self.meters = waiting(METER_CONNECTIONS, redis_connect_func=self._connect_meters)
        self._beats = waiting(1)
        # commands fail where no connection is left
        self.answers = client(redis.ConnectionPool, ANSWER_CONNECTIONS)
        patience_s = timeout_s + BLOCK_MS / 1000
        self.readers = client(redis.ConnectionPool, READERS, socket_timeout=patience_s)
        self.instance = secrets.token_hex(8)
        self.beat_s = beat_s
        self.lease_us = int(lease_s * 1e6)
        self.is_away = False
        self.proxies = 1
        self.catch_up: Callable[[bool], Awaitable[None]] = self._nothing_to_catch_up
        self._mark: bytes | None = None  # of the state that this proxy knows
        self._beat_script = self._beats.register_script(redis_scripts.BEAT)
        self._beating: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._try_beat()
        self._beating = asyncio.create_task(self._beat_forever())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.drop()
        with contextlib.suppress(*FAILURES):
            await self._beats.zrem(INSTANCES, self.instance)
        await self.close()

    async def drop(self) -> None:
        """Ends the beats, and tells Redis nothing."""
        if self._beating is not None:
            await background.end((self._beating,))

    async def close(self) -> None:
        for client in (self.meters, self._beats, self.answers, self.readers):
            await client.aclose()

    def lose(self, error: BaseException) -> None:
        """Begins an outage, unless the error concerns one command only."""
        if not isinstance(error, OF_ONE_COMMAND):
            self._begin_outage(error)

    def found(self) -> None:
        if self.is_away:
            self.is_away = False
            logger.info("limits: redis is back", proxies=self.proxies)

    async def reconnect(self) -> None:
        """Forgets idle connections. Those to a Redis that has died would fail one by one."""
        for client in (self.meters, self.answers, self.readers):
            await client.connection_pool.disconnect(inuse_connections=False)

    def _begin_outage(self, error: BaseException) -> None:
        if not self.is_away:
            logger.warning("limits: redis is away", error=str(error), advice=WHILE_AWAY)
            self.is_away = True

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(self.beat_s)
            await self._try_beat()

    async def _try_beat(self) -> None:
        try:
            await self._beat()
        except FAILURES as error:
            self._begin_outage(error)

    async def _beat(self) -> None:
        args = (self.instance, self.lease_us, secrets.token_hex(8))
        mark, alive = await self._beat_script((MARK, INSTANCES), args)
        is_lost, self._mark = self._mark not in (None, mark), bytes(mark)
        if is_lost:
            advice = "look why it was restarted, or evicted keys"
            logger.warning("limits: redis has lost its state, which all restore", advice=advice)
            self.is_away = True
        # After an outage the others come back one by one: what they grant meanwhile are shares.
        self.proxies = max(int(alive), self.proxies if self.is_away else 1)
        await self.catch_up(is_lost)

    async def _nothing_to_catch_up(self, is_lost: bool) -> None:
        if self.is_away:
            await self.reconnect()
            self.found()

    async def _connect_meters(self, connection: Any) -> None:
        """Called for each new connection.

        Raises:
            redis' ConnectionError: it reaches another state than the one that this proxy knows.
        """
        await connection.on_connect()
        await connection.send_command("GET", MARK)
        mark = await connection.read_response()
        if self._mark is not None and mark != self._mark:
            raise NoConnection("redis has started again without its data")
