"""The state of meters in Redis or Valkey: calls of the scripts, one round trip each.

Used by `redis_ledger`. Raises redis' own errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha1
from typing import Any, TypeVar

from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import NoScriptError, ResponseError

from proxy.ledger import redis_scripts
from proxy.ledger.port import Grant, Meter, Refusal

PREFIX = "triton-openai:"
MARK, INSTANCES = f"{PREFIX}{{all}}:mark", f"{PREFIX}{{all}}:instances"
CONNECTIONS = 16
FIELDS = 3  # of each meter in an answer

ByMeter = TypeVar("ByMeter", bound=tuple[Any, ...])
Amounts = Sequence[tuple[Meter, int, int, int]]  # meter, mark, reserved, amount


class Script:
    """Sent as its digest, and as text where Redis does not know it or a front between knows no
    EVALSHA.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._digest = sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._has_evalsha = True

    async def __call__(self, client: Any, keys: Sequence[str], args: Sequence[object]) -> Any:
        if self._has_evalsha:
            try:
                return await client.evalsha(self._digest, len(keys), *keys, *args)
            except NoScriptError:
                pass
            except ResponseError as error:
                if "unknown" not in str(error).lower() and "not support" not in str(error).lower():
                    raise
                self._has_evalsha = False
        return await client.eval(self._text, len(keys), *keys, *args)


class RedisState:
    """One proxy's access. instance: its name, unique. lease_us: how long Redis keeps what this
    proxy holds after it was last heard of. clock: for tests, in place of the server's.

    mark: of the state that this proxy knows; None before its first beat. A connection to another
    state fails: a Redis that has started again without its data would grant everything once more.
    Beats have a connection of their own, which sees the other state.
    """

    def __init__(
        self,
        url: str,
        instance: str,
        *,
        lease_us: int,
        timeout_s: float,
        clock: Callable[[], int] | None = None,
    ) -> None:
        options = {
            "timeout": timeout_s,
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "retry": Retry(NoBackoff(), 0),
        }
        self._client = _client(url, CONNECTIONS, {**options, "redis_connect_func": self._connect})
        self._beats = _client(url, 1, options)
        self.mark: bytes | None = None
        self._instance = instance
        self._lease_us = lease_us
        self._clock = clock
        self._reserve = Script(redis_scripts.RESERVE)
        self._change = Script(redis_scripts.CHANGE)
        self._hold = Script(redis_scripts.HOLD)
        self._beat = Script(redis_scripts.BEAT)

    async def close(self) -> None:
        await self._client.aclose()
        await self._beats.aclose()

    async def reconnect(self) -> None:
        """Forgets idle connections. Those to a Redis that has died would fail one by one."""
        await self._client.connection_pool.disconnect(inuse_connections=False)

    async def leave(self) -> None:
        await self._beats.zrem(INSTANCES, self._instance)

    async def beat(self, new_mark: str) -> tuple[bytes, int]:
        """The mark of the state, which changes where it was lost; and how many proxies live."""
        args = (self._instance, self._lease_us, new_mark)
        mark, alive = await self._beat(self._beats, (MARK, INSTANCES), args)
        return bytes(mark), int(alive)

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        args = [*self._head("reserve")]
        for meter, amount in zip(meters, amounts, strict=True):
            args += (meter.kind.value, meter.limit, meter.span_us, meter.opening, amount)
        longest, at, *rest = await self._reserve(self._client, _keys(meters), args)
        look = list(zip(rest[1::FIELDS], rest[2::FIELDS], strict=True)).__getitem__
        if longest:
            return Refusal(meters, at, longest, look)
        return Grant(meters, amounts, look, rest[::FIELDS])

    async def change(self, operation: str, changes: Amounts) -> None:
        """For meters of one tenant. Operations: see redis_scripts.CHANGE."""
        args = [*self._head(operation)]
        for meter, mark, reserved, amount in changes:
            args += (meter.kind.value, meter.span_us, meter.opening, mark, reserved, amount)
        await self._change(self._client, _keys([change[0] for change in changes]), args)

    async def hold(self, held: Sequence[tuple[Meter, int]]) -> None:
        """What this proxy holds of gauges and periods of one tenant, whatever Redis says."""
        args = (*self._head("hold"), *(amount for _, amount in held))
        await self._hold(self._client, _keys([meter for meter, _ in held]), args)

    async def renew(self, tenant: str) -> None:
        """Keeps what this proxy holds of a tenant's gauges and periods for another lease."""
        await self._hold(self._client, [f"{_tag(tenant)}leases"], self._head("hold"))

    async def _connect(self, connection: Any) -> None:
        """Called for each new connection.

        Raises:
            redis' ConnectionError: it reaches another state than the one that this proxy knows.
        """
        await connection.on_connect()
        await connection.send_command("GET", MARK)
        mark = await connection.read_response()
        if self.mark is not None and mark != self.mark:
            raise NoConnection("redis has started again without its data")

    def _head(self, operation: str) -> tuple[object, ...]:
        now = 0 if self._clock is None else self._clock()
        return operation, now, f"i:{self._instance}", self._lease_us


def _client(url: str, connections: int, options: dict[str, Any]) -> Any:
    pool = redis.BlockingConnectionPool.from_url(url, max_connections=connections, **options)
    return redis.Redis.from_pool(pool)


def by_tenant(items: Iterable[ByMeter]) -> dict[str, list[ByMeter]]:
    """Tuples that begin with a meter, grouped: the keys of one call have one hash tag."""
    grouped: dict[str, list[ByMeter]] = {}
    for item in items:
        grouped.setdefault(item[0].tenant, []).append(item)
    return grouped


def _tag(tenant: str) -> str:
    """The braces make all keys of a tenant one slot of a cluster."""
    return f"{PREFIX}{{{tenant}}}:"


def _keys(meters: Sequence[Meter]) -> list[str]:
    tag = _tag(meters[0].tenant)
    return [f"{tag}leases", *(f"{tag}{meter.key}" for meter in meters)]
