"""One proxy's connections to Redis or Valkey, and the one place that knows whether Redis is away.

Run by `redis_meters`; `redis_streams` uses the same one. Its beats renew this
proxy's presence, and alone decide whether Redis answers and still has its state: another command
that fails only lets the next beat come soon. All keys begin with PREFIX.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog
from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError, ResponseError
from typing_extensions import Self

from proxy import background
from proxy.state import redis_scripts

logger = structlog.get_logger(__name__)

PREFIX = "triton-openai:"
MARK, INSTANCES = f"{PREFIX}{{all}}:mark", f"{PREFIX}{{all}}:instances"
METER_CONNECTIONS = 16
ANSWER_CONNECTIONS = 64
TENANT_CONNECTIONS = ANSWER_CONNECTIONS // 4  # of one tenant; its further commands wait
FOLLOWERS = 2  # one for each kind of streams: see stream_follower
BLOCK_S = 1.0  # how long a reader waits for more; also what a command about answers takes longer
LEASE_S = 10.0
BEAT_S = 2.0
SOONEST_S = 0.25  # between two beats
AGAIN_S = 0.25  # between two tries of a command
READ_PATIENCE_S = 30.0
TICKS = 8
WHILE_AWAY = "look at the server of LEDGER_URL; LEDGER_OUTAGE says what holds until it answers"
WHILE_LATE = "look at the load of the server of LEDGER_URL, or raise LEDGER_TIMEOUT_MS"

FAILURES = (RedisError, OSError, asyncio.TimeoutError)
T = TypeVar("T")


def tenant_tag(tenant: str) -> str:
    """How a tenant's keys begin. The braces make them all one slot of a cluster."""
    return f"{PREFIX}{{{tenant}}}:"


async def within(timeout_s: float, work: Awaitable[T]) -> T:
    """As asyncio.wait_for, less the lag of our own event loop: while it stands still, only one of
    TICKS passes.
    """
    task = asyncio.ensure_future(work)
    try:
        for _ in range(TICKS):
            if (await asyncio.wait((task,), timeout=timeout_s / TICKS))[0]:
                return task.result()
        raise asyncio.TimeoutError(f"no answer within {timeout_s} s")
    except BaseException:
        await background.end((task,))
        raise


class RedisConnection:
    """is_away: Redis does not answer, or is not up to date since it came back. proxies: those last
    seen alive, at least 1. catch_up: called after each beat with whether Redis has lost its state;
    calls `found` where all is well.

    meters: fails on a Redis that has started again without its data, which would grant everything
    once more. Beats have a connection of their own, which sees the other state. patience_s: how
    long readers of answers wait for a Redis that does not answer.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        beat_s: float = BEAT_S,
        lease_s: float = LEASE_S,
        patience_s: float = READ_PATIENCE_S,
    ) -> None:

        def client(most: int, **options: Any) -> Any:
            """Its commands wait for a connection; `within` has the timeouts."""
            waits = {"timeout": None, "socket_timeout": None, "socket_connect_timeout": None}
            once = Retry(NoBackoff(), 0)
            made = redis.BlockingConnectionPool.from_url(
                url, max_connections=most, retry=once, **waits, **options
            )
            return redis.Redis.from_pool(made)

        self.meters = client(METER_CONNECTIONS, redis_connect_func=self._connect_meters)
        self._beats = client(1)
        self.answers = client(ANSWER_CONNECTIONS)
        self.followers = client(FOLLOWERS)
        self.timeout_s = timeout_s
        self.patience_s = patience_s
        self.instance = secrets.token_hex(8)
        self.beat_s = beat_s
        self.lease_us = int(lease_s * 1e6)
        self.proxies = 1
        self.catch_up: Callable[[bool], Awaitable[None]] = self._nothing_to_catch_up
        self._places = asyncio.Semaphore(ANSWER_CONNECTIONS)
        self._shares = WeakValueDictionary[bytes, asyncio.Semaphore]()  # of waiting tenants
        self._away_since = math.inf
        self._answered_at = math.inf  # the last beat
        self._steady_since = -math.inf
        self._failed = 0  # commands since the last beat
        self._has_failed = asyncio.Event()
        self._mark: bytes | None = None  # of the state that this proxy knows
        self._beat_script = self._beats.register_script(redis_scripts.BEAT)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_away(self) -> bool:
        return self._away_since < math.inf

    async def __aenter__(self) -> Self:
        await self._try_beat()
        self.run(self._beat_forever())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.drop()
        with contextlib.suppress(*FAILURES):
            await within(self.timeout_s, self._beats.zrem(INSTANCES, self.instance))
        await self.close()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """In a task that ends with the connection."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drop(self) -> None:
        """Ends its tasks, and tells Redis nothing."""
        await background.end(self._tasks)

    async def close(self) -> None:
        for client in (self.meters, self._beats, self.answers, self.followers):
            await client.aclose()

    async def answered(self, command: Awaitable[T], more_s: float = 0.0) -> T:
        """Raises one of FAILURES. more_s: what it may take longer than a meter."""
        try:
            return await within(self.timeout_s + more_s, command)
        except ResponseError:
            raise  # concerns its key; where Redis refuses everything, it refuses the next beat, too
        except FAILURES:
            self._failed += 1
            self._has_failed.set()
            raise

    async def call(
        self,
        tenant: bytes,
        command: Callable[..., Awaitable[Any]],
        *args: Any,
        patience_s: float = 0.0,
        **options: Any,
    ) -> Any:
        """A command about answers, in its tenant's share of the connections.

        patience_s: tries again, until Redis has not answered for so long. What fails is often
        executed later, so that it must be a command that may be executed twice.

        Raises:
            one of FAILURES.
        """
        began = time.monotonic()
        share = self._shares.setdefault(tenant, asyncio.Semaphore(TENANT_CONNECTIONS))
        while True:
            try:
                async with share, self._places:
                    if self.is_away:
                        raise NoConnection("redis is away")
                    return await self.answered(command(*args, **options), BLOCK_S)
            except ResponseError:
                raise
            except FAILURES:
                if time.monotonic() - min(began, self._away_since) >= patience_s:
                    raise
            await asyncio.sleep(AGAIN_S)

    def is_steady(self, seconds: float) -> bool:
        """Whether Redis has answered all beats of the last seconds, and none of them late."""
        return not self.is_away and time.monotonic() - self._steady_since >= seconds

    def found(self) -> None:
        if self.is_away:
            self._away_since = math.inf
            logger.info("limits: redis is back", proxies=self.proxies)

    async def reconnect(self) -> None:
        """Forgets idle connections. Those to a Redis that has died would fail one by one."""
        for client in (self.meters, self.answers, self.followers):
            await client.connection_pool.disconnect(inuse_connections=False)

    def _begin_outage(self, error: BaseException) -> None:
        if not self.is_away:
            logger.warning("limits: redis is away", error=str(error), advice=WHILE_AWAY)
            self._away_since = time.monotonic()

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(min(SOONEST_S, self.beat_s))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_failed.wait(), self.beat_s - SOONEST_S)
            await self._try_beat()

    async def _try_beat(self) -> None:
        self._has_failed.clear()
        failed, self._failed = self._failed, 0
        try:
            is_lost = await within(self.timeout_s, self._beat())
        except FAILURES as error:
            self._begin_outage(error)
            return
        if failed and not self.is_away:
            logger.warning("redis was late for some commands", commands=failed, advice=WHILE_LATE)
        with contextlib.suppress(*FAILURES):  # the next beat tries again
            await self.catch_up(is_lost)

    async def _beat(self) -> bool:
        """Whether Redis has lost its state."""
        args = (self.instance, self.lease_us, secrets.token_hex(8))
        mark, alive = await self._beat_script((MARK, INSTANCES), args)
        now = time.monotonic()
        if self.is_away or now - self._answered_at > 2 * self.beat_s:
            self._steady_since = now
        self._answered_at = now
        is_lost, self._mark = self._mark not in (None, mark), bytes(mark)
        if is_lost:
            advice = "look why it was restarted, or evicted keys"
            logger.warning("limits: redis has lost its state, which all restore", advice=advice)
            self._away_since = min(self._away_since, now)
        # After an outage the others come back one by one: what they grant meanwhile are shares.
        self.proxies = max(int(alive), self.proxies if self.is_away else 1)
        return is_lost

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
