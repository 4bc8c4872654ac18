"""One Triton server of a pool: what it serves, whether it may get requests, and its work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import httpx
import structlog

from proxy import background
from proxy.domain.endpoints import (
    EndpointAddress,
    EndpointState,
    EndpointStatus,
)
from proxy.domain.engine import NotReady
from proxy.domain.interrupt import Interrupt
from proxy.domain.model import LoadedModel, ModelFacts
from proxy.pools.breaker import CircuitBreaker, Clock
from proxy.pools.candidate import OUTPUT_TOKENS, Candidate
from proxy.pools.engine_load import EVERY_S, UNKNOWN, LoadReader
from proxy.triton.connection import TritonConnection

if TYPE_CHECKING:
    from proxy.pools.pool import Pool

logger = structlog.get_logger(__name__)

Connect = Callable[[EndpointAddress], TritonConnection]
TOKENS_A_STREAM = 2 * OUTPUT_TOKENS  # of a stream that another process sent
CHECK_EVERY_S = 0.5
CHECKS_PER_RELOAD = 60  # behind a load balancer the next check may reach another build
LEAVES_AFTER_S = 3600.0  # an endpoint that left closes when its streams have ended, or then
LOOK_EVERY_S = 0.25
NOT_REACHED = NotReady("it has not been reached yet")
LOST = "a stream lost its connection to it"


class Served(Candidate):
    """One model on one endpoint. load: what its engine reported last."""

    __slots__ = ("endpoint", "load", "model")

    def __init__(self, endpoint: Endpoint, model: LoadedModel) -> None:
        super().__init__(endpoint.name, bit=endpoint.bit, rows=model.facts.rows)
        self.endpoint = endpoint
        self.model = model
        self.load = UNKNOWN


class Endpoint:
    """`run` asks its Triton for its state and load, and tells the pool what has changed.

    bit: of the pool's prefix index. served: by Triton's name of the model; kept while the endpoint
    is not ready. ready_names: of all that is ready there, other projects' models, too. is_leaving:
    its source no longer names it. is_drained: an operator decided so. checked: set after each
    check. movable: streams that another endpoint of their build can continue.
    """

    def __init__(
        self,
        pool: Pool,
        address: EndpointAddress,
        connection: TritonConnection,
        *,
        bit: int,
        clock: Clock,
    ) -> None:
        self.pool = pool
        self.address = address
        self.connection = connection
        self.bit = bit
        self.breaker = CircuitBreaker(clock=clock, may_eject=lambda: pool.may_eject(self))
        self.load = UNKNOWN
        self.served: Mapping[str, Served] = {}
        self._earlier: list[Served] = []  # builds that are gone, with streams that still run
        self.why_not_ready: NotReady | None = NOT_REACHED
        self.ready_names: frozenset[str] = frozenset()
        self.is_leaving = self.is_drained = False
        self.is_suspect = False
        self.checked = asyncio.Event()
        self._look_now = asyncio.Event()
        self.movable: dict[Interrupt, ModelFacts] = {}
        self._was_loaded = False  # since the last check: a model, perhaps under the same version
        self._clock = clock
        self._lost_at = float("-inf")
        self._index: frozenset[str] | None = None  # of models that were ready at the last reload
        self._until_reload = 0  # checks

    async def run(self) -> None:
        """Keeps the connection open until the endpoint has left and its streams have ended."""
        port = self.address.metrics_port or self.pool.metrics_port
        async with self.connection:
            tasks = [asyncio.create_task(self._keep_checking())]
            if port is not None:
                tasks.append(asyncio.create_task(self._read_load(port)))
            try:
                await self._has_left()
                self.pool.remove(self)
            finally:
                await background.end(tasks)
        self._log("endpoint is gone")

    async def _keep_checking(self) -> None:
        while True:
            self._look_now.clear()
            await self._check()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), CHECK_EVERY_S)
            if self._look_now.is_set():  # a Triton that just died is gone for a moment longer
                await asyncio.sleep(CHECK_EVERY_S / 10)

    async def _check(self) -> None:
        """Asks once. What is loaded is read again when the index of ready models changed, and when
        the endpoint comes back.
        """
        catalog, began = self.connection.catalog, self._clock()
        index: frozenset[str] = frozenset()
        try:
            index = await catalog.ready_models()
            is_due = index != self._index or self._until_reload <= 0 or self._was_loaded
            if is_due or not self.is_ready:
                self._was_loaded = False
                self._serve(map(self.pool.own, await catalog.load()))
                self._index, self._until_reload = index, CHECKS_PER_RELOAD
        except NotReady as error:
            self._became_unready(error)
        except Exception as error:  # a Triton of whatever kind, whose answer nobody foresaw
            self._became_unready(NotReady(f"its answer cannot be read: {error!r}"))
        else:
            self._until_reload -= 1
            self._became_ready(began)
        finally:
            self.ready_names = frozenset(one.rpartition(":")[0] for one in index)
            self.checked.set()

    async def _has_left(self) -> None:
        since = None
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            since = (since or self._clock()) if self.is_leaving else None
            if since is not None and (not self.streams or self._clock() - since > LEAVES_AFTER_S):
                return

    async def _read_load(self, port: int) -> None:
        """Only where the pool has other endpoints, or engines have rows, their load matters."""
        url = f"http://{self.name.rpartition(':')[0]}:{port}/metrics"
        async with httpx.AsyncClient(trust_env=False) as client:
            reader = LoadReader(url, client, clock=self._clock)
            while True:
                if len(self.pool.endpoints) > 1 or self._has_rows:
                    await reader.read()
                    self._set_load(reader)
                await asyncio.sleep(EVERY_S)

    @property
    def is_ready(self) -> bool:
        """Whether its Triton answered the last check, and no stream has lost it since."""
        return self.why_not_ready is None and not self.is_suspect

    @property
    def is_routable(self) -> bool:
        """Whether nothing but its models may keep new work from it."""
        return not (self.is_suspect or self.is_leaving or self.is_drained)

    @property
    def gets_streams(self) -> bool:
        return self.why_not_ready is None and self.is_routable

    @property
    def _has_rows(self) -> bool:
        """Whether an engine there says how many rows it has, so that its load matters to queues."""
        return any(one.model.facts.says_rows for one in self.served.values())

    @property
    def streams(self) -> int:
        return sum(work.streams for work in self._works())

    @property
    def state(self) -> EndpointState:
        if self.is_leaving or self.is_drained:
            return EndpointState.DRAINING if self.streams else EndpointState.DRAINED
        if self.why_not_ready is NOT_REACHED:
            return EndpointState.CONNECTING
        if not self.is_ready:
            return EndpointState.NOT_READY
        return EndpointState.READY if self.breaker.is_closed else EndpointState.EJECTED

    def _serve(self, models: Iterable[LoadedModel]) -> None:
        """What a check has found there. Models that are the same objects keep their work."""
        kept = self.served
        found = {model.name: model for model in models}
        self.served = {
            name: kept[name] if name in kept and kept[name].model is model else Served(self, model)
            for name, model in found.items()
        }
        if kept != self.served:
            gone = [one for name, one in kept.items() if self.served.get(name) is not one]
            earlier = (*self._earlier, *gone)
            self._earlier = [one for one in earlier if one.streams]
            self._log("endpoint serves", models=sorted(found))
            self.pool.note_change()

    def _became_ready(self, began: float) -> None:
        """A check that began then succeeded."""
        was_ready, self.why_not_ready = self.is_ready, None
        if self._lost_at < began:
            self.is_suspect = False
        if self.is_ready and not was_ready:
            self._log("endpoint is ready", models=sorted(self.served))
            self.pool.note_change()
            self.pool.begin_slowly(self)

    def _became_unready(self, reason: NotReady) -> None:
        was_ready, before = self.is_ready, self.why_not_ready
        self.why_not_ready = reason
        if before is None or str(before) != str(reason):
            self._warn(str(reason))
        if was_ready:
            self.pool.note_change()

    def lost(self) -> None:
        """A stream lost its connection: nothing more is sent there until a check succeeds."""
        was_ready, self._lost_at = self.is_ready, self._clock()
        self.is_suspect = True
        self._look_now.set()
        if was_ready:
            self._warn(LOST)
            self.pool.note_change()

    def note_loading(self) -> None:
        """Its models were changed through us: the next check, which begins now, reads them all."""
        self._was_loaded = True
        self._look_now.set()

    def set_drained(self, is_drained: bool) -> None:
        if is_drained != self.is_drained:
            self.is_drained = is_drained
            self._log("endpoint drains" if is_drained else "endpoint gets streams again")
            self.pool.note_change()

    def set_leaving(self, is_leaving: bool) -> None:
        if is_leaving != self.is_leaving:
            self.is_leaving = is_leaving
            self._log("endpoint leaves its pool" if is_leaving else "endpoint is back in its pool")
            self.pool.note_change()

    def _set_load(self, reader: LoadReader) -> None:
        """Takes over what the reader has found of all models, and of each."""
        self.load = reader.load
        for one in self.served.values():
            one.load = reader.load_of(one.model.facts.engine_model)
            one.set_load(one.load, tokens_a_stream=TOKENS_A_STREAM)

    @property
    def name(self) -> str:
        return self.address.address

    @property
    def why_ejected(self) -> str:
        if self.breaker.was_slow:
            return "its answers are far slower than those of other endpoints"
        return "streams failed there one after another"

    def status(self) -> EndpointStatus:
        state, works = self.state, self._works()
        return EndpointStatus(
            pool=self.pool.name,
            address=self.name,
            state=state,
            reason=self._reason(state),
            models=tuple(sorted(self.served)),
            streams=sum(work.streams for work in works),
            outstanding_tokens=sum(work.tokens for work in works),
            load=self.load,
            ejections=self.breaker.ejections,
            ejected_for_s=self.breaker.ejected_for_s,
        )

    def _reason(self, state: EndpointState) -> str | None:
        match state:
            case EndpointState.READY:
                return None
            case EndpointState.EJECTED:
                tried = "" if self.breaker.ejected_for_s else "; the next request tries it"
                return f"{self.why_ejected}{tried}"
            case EndpointState.DRAINING | EndpointState.DRAINED:
                return "it left its pool" if self.is_leaving else "an operator drains it"
        return str(self.why_not_ready or LOST)

    def _works(self) -> list[Served]:
        return [*self.served.values(), *self._earlier]

    def _warn(self, reason: str) -> None:
        logger.warning(
            "endpoint is not ready",
            pool=self.pool.name,
            endpoint=self.name,
            reason=reason,
            advice="look at the reason, and at this Triton's log; it is asked again by itself",
        )

    def _log(self, event: str, **more: object) -> None:
        logger.info(event, pool=self.pool.name, endpoint=self.name, **more)
