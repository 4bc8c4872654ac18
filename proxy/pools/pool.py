"""A pool: the Triton servers that its source names, their health, and what they serve."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import httpx
import structlog

from proxy import background
from proxy.domain.endpoints import (
    Decisions,
    EndpointAddress,
    EndpointSource,
    EndpointState,
    EndpointStatus,
)
from proxy.domain.engine import NotReady
from proxy.domain.errors import EndpointDrains, ModelUnavailable, ProxyError, RateLimited
from proxy.domain.interrupt import Interrupt
from proxy.domain.model import LoadedModel, ModelFacts
from proxy.pools.breaker import CircuitBreaker, Clock
from proxy.pools.candidate import OUTPUT_TOKENS, Candidate, Candidates
from proxy.pools.choice import Chooser, Policy
from proxy.pools.engine_load import EVERY_S, UNKNOWN, LoadReader
from proxy.telemetry.endpoint_metrics import EndpointMetrics, Place
from proxy.triton.connection import TritonConnection
from proxy.triton.dialects.recognition import Found

logger = structlog.get_logger(__name__)

LOOK_EVERY_S = 0.25
MOST_SHARE = 0.5
FIRST_CHECKS_S = 6.0
AT_ONCE = 16  # in one turn of the event loop: each of them then finds an endpoint
TOKENS_A_STREAM = 2 * OUTPUT_TOKENS  # of a stream that another process sent
MOST_MODELS_REMEMBERED = 4096  # builds; a cluster that is rebuilt all day must not fill memory
CHECK_EVERY_S = 0.5
CHECKS_PER_RELOAD = 60  # behind a load balancer the next check may reach another build
LEAVES_AFTER_S = 3600.0  # an endpoint that left closes when its streams have ended, or then
NOT_REACHED = NotReady("it has not been reached yet")
LOST = NotReady("a stream lost its connection to it")
SILENT = "The model server did not answer. Send the request again."
DRAINS = "The server of this answer is being drained. Send it again."
UNTRIED = NotReady("its first generation has not ended", "the first generation has not ended")
BLOCKS_EVERY_S = 0.5
BLOCKS_AT_ONCE = 2_048  # of reports, in one turn of the event loop
TRIED_AGAIN_S, MOST_TRIED_AGAIN_S = 1.0, 30.0  # after a failure; doubled with each further one
FIRST_TRIALS_S = 2.0

Connect = Callable[[EndpointAddress], TritonConnection]


class Served(Candidate):
    """One model on one endpoint. load: what its engine reported last.

    why_not_ready: None once a short generation has ended since the endpoint became ready, so that
    no caller's request is the first to prefill and decode there. trial: that generation, or a later
    probe. answered_at: when a token came last.
    """

    __slots__ = (
        *("_again_s", "_due", "_probed_at", "answered_at", "endpoint", "load", "model", "trial"),
        "why_not_ready",
    )

    def __init__(self, endpoint: Endpoint, model: LoadedModel) -> None:
        super().__init__(endpoint.name, bit=endpoint.bit, rows=model.facts.rows)
        self.endpoint = endpoint
        self.model = model
        self.load = UNKNOWN
        self.trial: asyncio.Task[None] | None = None
        self.answered_at = self._probed_at = float("-inf")
        self.forget_trial()

    def forget_trial(self) -> None:
        if self.trial is not None:
            self.trial.cancel()
        self.trial = None
        self.why_not_ready: NotReady | None = UNTRIED
        self._due, self._again_s = float("-inf"), TRIED_AGAIN_S

    @property
    def has_failed(self) -> bool:
        return self.why_not_ready not in (None, UNTRIED)

    def begin_trial(self, now_s: float) -> None:
        """Unless it has succeeded, runs, or has failed just before."""
        if self.why_not_ready is not None and self._due <= now_s:
            self._due = float("inf")
            self.trial = asyncio.create_task(self._try())

    async def _try(self) -> None:
        failure = await _trial_failure(self.endpoint, self.model)
        self._probed_at = self.endpoint.clock()
        if failure is not None:
            self._due = self.endpoint.clock() + self._again_s
            self._again_s = min(2 * self._again_s, MOST_TRIED_AGAIN_S)
        self.endpoint.note_trial(self, failure)

    def begin_probe(self, now_s: float, every_s: float, within_s: float) -> None:
        """Unless it has answered just before."""
        is_due = now_s - max(self.answered_at, self._probed_at) >= every_s
        if is_due and self.why_not_ready is None and (self.trial is None or self.trial.done()):
            self._probed_at = now_s
            self.trial = asyncio.create_task(self._probe(now_s, within_s))

    async def _probe(self, began_s: float, within_s: float) -> None:
        try:
            generating = _trial_failure(self.endpoint, self.model)
            failure = await asyncio.wait_for(generating, within_s)
        except asyncio.TimeoutError:
            failure = NotReady(
                f"the model {self.model.name!r} generated nothing within {within_s:g} s",
                "a model does not generate",
            )
        if failure is not None and self.answered_at < began_s:
            self._due, self._again_s = self.endpoint.clock() + TRIED_AGAIN_S, TRIED_AGAIN_S
            self.endpoint.note_dead(self, failure)


async def _trial_failure(endpoint: Endpoint, model: LoadedModel) -> NotReady | None:
    try:
        await endpoint.connection.try_model(model, partial(endpoint.pool.counter.tried, model.name))
    except RateLimited:  # its queue is full: it generates for others
        return None
    except ProxyError as error:
        reason, shown = error.detail or error.message, error.message.rstrip(".")
    except Exception as error:  # as of a check
        reason, shown = f"its answer cannot be read: {error!r}", "its answer cannot be read"
    else:
        return None
    return NotReady(
        f"the model {model.name!r} does not generate: {reason}",
        f"a model does not generate: {shown}",
    )


class Endpoint:
    """One Triton server of a pool. `run` asks it for its state and load.

    bit: of the pool's prefix index. served: by Triton's name of the model; kept while the endpoint
    is not ready. ready_names: of all that is ready there, other projects' models, too. is_leaving:
    its source no longer names it. is_drained: an operator decided so. gone: set when it has left.
    checked: set after each check. interrupts: of the streams here, with the build of each.
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
        self.name = address.address
        self._metrics_port = address.metrics_port or pool.metrics_port
        self.connection = connection
        self.bit = bit
        self.breaker = CircuitBreaker(clock=clock, may_eject=lambda: pool.may_eject(self))
        self.load = UNKNOWN
        self.served: Mapping[str, Served] = {}
        self._earlier: list[Served] = []  # builds that are gone, with streams that still run
        self.why_not_ready: NotReady | None = NOT_REACHED
        self.ready_names: frozenset[str] = frozenset()
        self.is_leaving = self.is_drained = False
        self._left_at = 0.0
        self.gone = asyncio.Event()
        self.checked = asyncio.Event()
        self._look_now = asyncio.Event()
        self.interrupts: dict[Interrupt, ModelFacts] = {}
        self._was_loaded = False  # since the last check: a model, perhaps under the same version
        self.clock = clock
        self._lost_at = float("-inf")
        self._index: frozenset[str] | None = None  # of models that were ready at the last reload
        self._until_reload = 0  # checks
        self._others: tuple[Found, ...] = ()

    async def run(self) -> None:
        """Keeps the connection open until the endpoint is gone."""
        async with self.connection:
            tasks = [
                asyncio.create_task(self._keep_checking()),
                asyncio.create_task(self._follow_blocks()),
            ]
            if self._metrics_port is not None:
                tasks.append(asyncio.create_task(self._read_load(self._metrics_port)))
            try:
                await self.gone.wait()
            finally:
                await background.end(tasks)
                await background.end(self.trials)
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
        catalog, began = self.connection.catalog, self.clock()
        index: frozenset[str] = frozenset()
        try:
            index = await catalog.ready_models()
            is_due = index != self._index or self._until_reload <= 0 or self._was_loaded
            if is_due or self.why_not_ready is not None:
                self._was_loaded = False
                self._serve(map(self.pool.own, await catalog.load()))
                self._log_others(catalog.others)
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

    async def _read_load(self, port: int) -> None:
        """Only where the pool has other endpoints, or engines have rows, their load matters."""
        url = f"http://{self.name.rpartition(':')[0]}:{port}/metrics"
        async with httpx.AsyncClient(trust_env=False) as client:
            reader = LoadReader(url, client, clock=self.clock)
            while True:
                if len(self.pool.endpoints) > 1 or self._has_rows:
                    await reader.read()
                    self._set_load(reader)
                await asyncio.sleep(EVERY_S)

    async def _follow_blocks(self) -> None:
        """Keeps the pool's index up to date with what the engines here report of their KV caches.
        What cannot be read is guessed until it can.
        """
        prefixes, positions = self.pool.chooser.prefixes, dict[str, int]()
        while True:
            reporting = self._reporting if self.pool.compares_prefixes else ()
            try:
                is_known = all([await self._read_blocks(one, positions) for one in reporting])
            except ProxyError:
                is_known = False
            if not is_known:
                positions.clear()
            if reporting and not self.gone.is_set():  # else its bit may be another endpoint's
                (prefixes.settle if is_known else prefixes.forget_reports)(self.bit)
            await asyncio.sleep(BLOCKS_EVERY_S)

    @property
    def _reporting(self) -> list[str]:
        """The engine models here that report their KV caches."""
        return [
            one.model.facts.engine_model
            for one in self.served.values()
            if self.why_not_ready is None
            and one.why_not_ready is None
            and "prompt_blocks" in one.model.capabilities
        ]

    async def _read_blocks(self, engine: str, positions: dict[str, int]) -> bool:
        """False if what was read before does not hold: the engine is another one, or remembers no
        longer what has changed since. Raises ProxyError.
        """
        position, report = positions.get(engine, 0), self.pool.chooser.prefixes.report
        changes = await self.connection.engine.block_changes(engine, position)
        if changes.is_new and position:
            return False
        stored, removed = changes.stored, changes.removed
        for at in range(0, max(len(stored), len(removed)), BLOCKS_AT_ONCE):
            if self.gone.is_set():
                break
            end = at + BLOCKS_AT_ONCE
            report(self.bit, stored[at:end], removed[at:end])
            await asyncio.sleep(0)
        positions[engine] = changes.position
        return True

    @property
    def trouble(self) -> NotReady | None:
        """None if its Triton answered the last check, no stream has lost it since, and at least one
        model there has generated; else why not.
        """
        troubles = [one.why_not_ready for one in self.served.values()]
        return self.why_not_ready or (None if None in troubles else next(iter(troubles), None))

    @property
    def trials(self) -> list[asyncio.Task[None]]:
        return [one.trial for one in self.served.values() if one.trial is not None]

    @property
    def is_routable(self) -> bool:
        """Whether nothing but its models may keep new work from it."""
        return not (self.why_not_ready is LOST or self.is_leaving or self.is_drained)

    @property
    def gets_streams(self) -> bool:
        return self.trouble is None and self.is_routable

    @property
    def has_left(self) -> bool:
        """Whether its source no longer names it, and it need not wait for its streams."""
        is_late = self.clock() - self._left_at > LEAVES_AFTER_S
        return self.is_leaving and (not self.streams or is_late)

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
        if self.trouble is not None:
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
            for one in gone:
                one.forget_trial()
            earlier = (*self._earlier, *gone)
            self._earlier = [one for one in earlier if one.streams]
            self._log("endpoint serves", models=sorted(found))
            self.pool.note_change()

    def _log_others(self, others: tuple[Found, ...]) -> None:
        """What was found there of other people's models, once."""
        for one in others:
            if one not in self._others:
                facts = one.model.facts
                self._log(
                    "model of others found",
                    triton_model=one.model.name,
                    kind=facts.kind.value,
                    can=sorted(one.model.capabilities),
                    notes=one.notes,
                    advice="triton-openai adopt writes an entry of models.yaml that adds its "
                    "tokenizer, and so chats and exact counts",
                )
        self._others = others

    def _became_ready(self, began: float) -> None:
        """A check that began then succeeded."""
        if self.why_not_ready is not None and self._lost_at < began:
            self.why_not_ready = None
            self._log_ready()
            self.pool.note_change()
        if self.why_not_ready is None:
            now_s, probe_every_s = self.clock(), self.pool.probe_every_s
            for one in self.served.values():
                one.begin_trial(now_s)
                if probe_every_s is not None:
                    one.begin_probe(now_s, probe_every_s, self.pool.probe_timeout_s)

    def note_dead(self, probed: Served, failure: NotReady) -> None:
        """Triton says that it is ready, and the model there answers nobody: its streams move."""

        def is_dead(_: Interrupt) -> ModelUnavailable:
            return ModelUnavailable(SILENT, detail=str(failure))

        self.note_trial(probed, failure)
        self.pool.note_change()
        self.pool.run(self.interrupt(probed.model.facts, is_dead))

    async def interrupt(
        self, facts: ModelFacts, error_of: Callable[[Interrupt], ModelUnavailable | None]
    ) -> None:
        """Those streams of the build for which there is an error."""
        fired = 0
        for interrupt, own in list(self.interrupts.items()):
            error = error_of(interrupt) if own is facts and interrupt.error is None else None
            if error is not None:
                error.endpoint = self.name
                interrupt.fire(error)
                fired += 1
                if fired % AT_ONCE == 0:
                    await asyncio.sleep(0)

    def note_trial(self, tried: Served, failure: NotReady | None) -> None:
        before, tried.why_not_ready = tried.why_not_ready, failure
        if failure is None:
            self._log_ready()
            self.pool.note_change()
            self.pool.begin_slowly(tried)
        elif str(before) != str(failure):
            logger.warning(
                "model is not ready",
                pool=self.pool.name,
                endpoint=self.name,
                model=tried.model.name,
                reason=str(failure),
                advice="look at this Triton's log; a short generation is tried again by itself",
            )

    def _log_ready(self) -> None:
        """With the models that get streams; nothing if there is none."""
        if models := sorted(name for name, one in self.served.items() if not one.why_not_ready):
            self._log("endpoint is ready", models=models)

    def _became_unready(self, reason: NotReady) -> None:
        """A model whose streams survive has generated, and needs no new trial."""
        for one in self.served.values():
            if not one.streams:
                one.forget_trial()
        before, self.why_not_ready = self.why_not_ready, reason
        if before is None or str(before) != str(reason):
            logger.warning(
                "endpoint is not ready",
                pool=self.pool.name,
                endpoint=self.name,
                reason=str(reason),
                advice="look at the reason, and at this Triton's log; the proxy tries again itself",
            )
        if before is None:
            self.pool.note_change()

    def lost(self) -> None:
        """A stream lost its connection: nothing more is sent there until a check succeeds."""
        self._lost_at = self.clock()
        self._look_now.set()
        for one in self.served.values():
            one.forget_trial()
        if self.why_not_ready is None:
            self._became_unready(LOST)

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
            self.is_leaving, self._left_at = is_leaving, self.clock()
            self._log("endpoint leaves its pool" if is_leaving else "endpoint is back in its pool")
            self.pool.note_change()

    def _set_load(self, reader: LoadReader) -> None:
        """Takes over what the reader has found of all models, and of each."""
        self.load = reader.load
        for one in self.served.values():
            one.load = reader.load_of(one.model.facts.engine_model)
            one.set_load(one.load, tokens_a_stream=TOKENS_A_STREAM)

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
                failed = next((one for one in self.served.values() if one.has_failed), None)
                return None if failed is None else str(failed.why_not_ready)
            case EndpointState.EJECTED:
                tried = "" if self.breaker.ejected_for_s else "; the next request tries it"
                return f"{self.why_ejected}{tried}"
            case EndpointState.DRAINING | EndpointState.DRAINED:
                return "it left its pool" if self.is_leaving else "an operator drains it"
        return str(self.trouble)

    def _works(self) -> list[Served]:
        return [*self.served.values(), *self._earlier]

    def _log(self, event: str, **more: object) -> None:
        logger.info(event, pool=self.pool.name, endpoint=self.name, **more)


def may_eject(*, endpoints: int, ejected: int, healthy_others: int, most_share: float) -> bool:
    """Whether one more endpoint of a pool may be ejected.

    endpoints: all of the pool. ejected: those whose breaker is not closed. healthy_others: those
    that would still get new streams. At most `most_share` of the endpoints are ejected, but one
    may always be, and never the last healthy one.
    """
    most = max(1, int(endpoints * most_share))
    return healthy_others >= 1 and ejected < most


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """connect: to an endpoint. most_ejected: the share of endpoints that may be ejected at once.

    metrics_port: of endpoints whose address names none; None: their load is not read.
    probe_every_s: after so long without a token a model is asked for some; None: never.
    """

    name: str
    source: EndpointSource
    connect: Connect
    metrics_port: int | None = None
    policy: Policy = Policy.PREFIX
    most_ejected: float = MOST_SHARE
    probe_every_s: float | None = None
    probe_timeout_s: float = 10.0


class Pool:
    """changed: called when what the pool serves may differ."""

    def __init__(
        self,
        options: PoolOptions,
        decisions: Decisions,
        counter: EndpointMetrics,
        *,
        clock: Clock,
        random: Random,
        changed: Callable[[], None],
    ) -> None:
        self.name = options.name
        self.metrics_port = options.metrics_port
        self.probe_every_s, self.probe_timeout_s = options.probe_every_s, options.probe_timeout_s
        self.chooser = Chooser(options.policy, clock=clock, random=random)
        self.endpoints: dict[str, Endpoint] = {}
        self.ejected: set[str] = set()  # those whose breaker is not closed
        self._options = options
        self._decisions = decisions
        self.counter = counter
        self._interned: dict[LoadedModel, LoadedModel] = {}
        self._clock = clock
        self._changed = changed
        self._variants: dict[int, Candidates[Served]] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._named = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows the source and the operators' decisions. The body begins after first checks."""
        following = [asyncio.create_task(self._follow()), asyncio.create_task(self._look_after())]
        try:
            await self._first_checks()
            yield
        finally:
            await background.end(following)
            await background.end(self._running)

    def variant(self, facts: ModelFacts) -> Candidates[Served] | None:
        """The endpoints that get streams for this build; None: there is none.

        facts: of one of `models`, itself: equal facts of another object are not found.
        """
        if self._variants is None:
            found: dict[int, list[Served]] = {}
            for endpoint in self.endpoints.values():
                if endpoint.gets_streams:
                    for one in endpoint.served.values():
                        if one.why_not_ready is None:
                            found.setdefault(id(one.model.facts), []).append(one)
            self._variants = {key: Candidates(served) for key, served in found.items()}
        return self._variants.get(id(facts))

    def models(self) -> list[LoadedModel]:
        """Every build that an endpoint serves, also one that is not ready now."""
        known = {
            id(one.model.facts): one.model
            for endpoint in self.endpoints.values()
            if not endpoint.is_leaving
            for one in endpoint.served.values()
        }
        return list(known.values())

    @property
    def compares_prefixes(self) -> bool:
        return len(self.endpoints) > 1 and self._options.policy is Policy.PREFIX

    def note_change(self) -> None:
        self._variants = None
        self._changed()

    def note_breaker(self, endpoint: Endpoint) -> None:
        """Called after a stream's success or failure there may have moved its breaker."""
        if not self._has(endpoint):
            return
        is_closed = endpoint.breaker.is_closed
        if is_closed and endpoint.name in self.ejected:
            self.ejected.discard(endpoint.name)
            logger.info("endpoint is no longer ejected", pool=self.name, endpoint=endpoint.name)
            for one in endpoint.served.values():
                self.begin_slowly(one)
            self._changed()
        elif not is_closed and endpoint.name not in self.ejected:
            self.ejected.add(endpoint.name)
            self._changed()
            self.counter.ejected(Place(self.name, endpoint.name))
            logger.warning(
                "endpoint is ejected",
                pool=self.name,
                endpoint=endpoint.name,
                reason=endpoint.why_ejected,
                seconds=endpoint.breaker.ejected_for_s,
                advice="look at this Triton and its log; it is tried again by itself",
            )

    def may_eject(self, endpoint: Endpoint) -> bool:
        others = [one for one in self.endpoints.values() if one is not endpoint]
        return may_eject(
            endpoints=len(self.endpoints),
            ejected=len(self.ejected),
            healthy_others=sum(one.gets_streams and one.breaker.is_closed for one in others),
            most_share=self._options.most_ejected,
        )

    async def _first_checks(self) -> None:
        """Until every endpoint that the source names first has been asked, but not for longer than
        FIRST_CHECKS_S: a proxy that begins with some of them would not know all models. Then for
        the first generations, for at most FIRST_TRIALS_S.
        """

        async def all_checked() -> None:
            await self._named.wait()
            for endpoint in list(self.endpoints.values()):
                await endpoint.checked.wait()
            trials = [one for endpoint in self.endpoints.values() for one in endpoint.trials]
            if trials:
                await asyncio.wait(trials, timeout=FIRST_TRIALS_S)

        checking = asyncio.create_task(all_checked())
        await asyncio.wait([checking], timeout=FIRST_CHECKS_S)
        await background.end([checking])

    async def _follow(self) -> None:
        async with aclosing(self._options.source.watch()) as sets:
            async for addresses in sets:
                self._update(addresses)
                self._named.set()

    def _update(self, addresses: frozenset[EndpointAddress]) -> None:
        named = {one.address: one for one in addresses}
        for name, endpoint in self.endpoints.items():
            endpoint.set_leaving(name not in named)
        for name in sorted(named.keys() - self.endpoints.keys()):
            self._add(named[name])
        self.note_change()

    def _add(self, address: EndpointAddress) -> None:
        endpoint = Endpoint(
            self,
            address,
            self._options.connect(address),
            bit=self.chooser.prefixes.add_endpoint(),
            clock=self._clock,
        )
        self.endpoints[endpoint.name] = endpoint
        logger.info("endpoint found", pool=self.name, endpoint=endpoint.name)
        endpoint.set_drained(endpoint.name in self._decisions.drained)
        self.run(endpoint.run())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Beside all else, until the pool ends."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def own(self, model: LoadedModel) -> LoadedModel:
        """The one object that stands for all models of this pool that equal this one."""
        if len(self._interned) >= MOST_MODELS_REMEMBERED:
            used = {id(one) for one in self.models()}
            self._interned = {one: one for one in self._interned if id(one) in used}
        own = replace(model, pool=self.name)
        return self._interned.setdefault(own, own)

    def begin_slowly(self, one: Served) -> None:
        """It was not ready before, so its engine has nothing cached."""
        if self._has(one.endpoint):
            self.chooser.forget(one)
            self.chooser.start_slowly(one)

    def _remove(self, endpoint: Endpoint) -> None:
        endpoint.gone.set()
        del self.endpoints[endpoint.name]
        self.ejected.discard(endpoint.name)
        for one in endpoint.served.values():
            self.chooser.end_slow_start(one)
        self.chooser.adapters.forget(endpoint.bit)  # before the bit is free for another
        self.chooser.prefixes.remove_endpoint(endpoint.bit)
        self.note_change()

    def _has(self, endpoint: Endpoint) -> bool:
        """False when it has left: its name and its bit may be another endpoint's now."""
        return self.endpoints.get(endpoint.name) is endpoint

    def obey(self) -> None:
        """Drains the endpoints that operators have drained, and no others."""
        drained = self._decisions.drained
        for endpoint in list(self.endpoints.values()):
            endpoint.set_drained(endpoint.name in drained)

    async def _look_after(self) -> None:
        """Obeys operators' decisions, moves the streams of endpoints that drain, and removes those
        that have left.
        """
        while True:
            self.obey()
            for endpoint in list(self.endpoints.values()):
                if endpoint.is_drained or endpoint.is_leaving:
                    await self._move(endpoint)
                if endpoint.has_left:
                    self._remove(endpoint)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _move(self, endpoint: Endpoint) -> None:
        """Interrupts the streams that another endpoint can continue now: this one drains."""

        def drains(interrupt: Interrupt) -> EndpointDrains | None:
            return EndpointDrains(DRAINS) if interrupt.can_move else None

        for facts in {id(own): own for own in endpoint.interrupts.values()}.values():
            if self.variant(facts) is not None:
                await endpoint.interrupt(facts, drains)
