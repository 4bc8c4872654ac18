"""Pools over doubles of Tritons, which a test starts, kills and changes as it likes.

Run it with tests.doubles.clock.run, so that half a second between two checks costs nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from random import Random

from proxy.domain.endpoints import DEFAULT_POOL, EndpointAddress, EndpointState
from proxy.domain.engine import EngineRequest, NotReady
from proxy.domain.errors import ModelUnavailable, ProxyError
from proxy.domain.model import LoadedModel, ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.request import Sampling
from proxy.pools.choice import Policy
from proxy.pools.pool import Endpoint, Pool, PoolOptions
from proxy.pools.pool_set import PoolSet
from proxy.pools.pooled_engine import PooledEngine, PooledTokenizer
from proxy.telemetry.endpoint_metrics import Outcome, Place
from tests.doubles.engine import CARD, FACTS, ScriptedEngine, deltas
from tests.doubles.pools import DecisionsInMemory
from tests.doubles.tokenizer import ByteTokenizer

A_CHECK_S = 1.0  # longer than what passes between two
TRIED_TOKENS = 5  # of each trial
DEMO = LoadedModel(name="demo", facts=FACTS)


def build(created: int, **fields: object) -> LoadedModel:
    """Another build of `demo`."""
    return replace(DEMO, facts=replace(FACTS, created=created), **fields)


class GivenSource:
    """Names the addresses that a test gives it."""

    def __init__(self, *addresses: str) -> None:
        self._sets: asyncio.Queue[frozenset[EndpointAddress]] = asyncio.Queue()
        self.name(*addresses)

    def name(self, *addresses: str) -> None:
        self._sets.put_nowait(frozenset(map(EndpointAddress, addresses)))

    async def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        while True:
            yield await self._sets.get()


class ScriptedTriton:
    """Stands for a TritonConnection. reason: why it is not ready; None: it is.

    fault: what its catalog raises instead. open: connections. trials: models that were tried.
    trial_faults: by model, the error of its trials, or the event that they wait for.
    """

    def __init__(self, *models: LoadedModel) -> None:
        self.models = list(models or (DEMO,))
        self.engine = ScriptedEngine(deltas("ab"))
        self.tokenizer = ByteTokenizer()
        self.catalog, self.others = self, ()
        self.reason: str | None = None
        self.fault: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.checks = self.open = 0
        self.trials: list[str] = []
        self.trial_faults: dict[str, Exception | asyncio.Event] = {}

    async def __aenter__(self) -> ScriptedTriton:
        self.open += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.open -= 1

    async def ready_models(self) -> frozenset[str]:
        self.checks += 1
        reason, fault, found = self.reason, self.fault, self.models
        await self.may_answer.wait()
        if fault is not None:
            raise fault
        if reason is not None:
            raise NotReady(reason)
        return frozenset(f"{one.name}:{version}" for one in found for version in one.versions)

    async def try_model(self, model: LoadedModel, note_tokens: Callable[[int], None]) -> None:
        self.trials.append(model.name)
        note_tokens(TRIED_TOKENS)
        fault = self.trial_faults.get(model.name)
        if isinstance(fault, asyncio.Event):
            await fault.wait()
        elif fault is not None:
            raise fault

    async def load(self) -> tuple[LoadedModel, ...]:
        return tuple(replace(one, facts=replace(one.facts)) for one in self.models)


class CountedPlaces:
    """Stands for EndpointMetrics. states: of the endpoints of each pool, as they were counted."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.expected: list[int] = []  # cached tokens of each stream, as it began
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.failures: list[ProxyError] = []
        self.tried_tokens: Counter[str] = Counter()
        self.ejections: Counter[str] = Counter()
        self.states: dict[str, dict[EndpointState, int]] = {}

    def began(self, place: Place, first_token_s: float, expected: int, cached: int) -> None:
        self.begun[place.endpoint] += 1
        self.expected.append(expected)

    def ended(self, place: Place, outcome: Outcome, tokens: int) -> None:
        self.outcomes[place.endpoint, outcome.value] += 1

    def failed(self, place: Place, error: ProxyError) -> None:
        self.failures.append(error)

    def tried(self, triton_model: str, tokens: int) -> None:
        self.tried_tokens[triton_model] += tokens

    def ejected(self, place: Place) -> None:
        self.ejections[place.endpoint] += 1

    def counted(self, pool: str, endpoints: Mapping[EndpointState, int]) -> None:
        self.states[pool] = dict(endpoints)


class PoolStand:
    """One pool of these Tritons behind the pooled ports. tritons: by address."""

    def __init__(
        self,
        tritons: dict[str, ScriptedTriton],
        policy: str = "least_outstanding",
        **given: object,
    ) -> None:
        """given: of PoolOptions."""
        self.tritons = tritons
        self.source = GivenSource(*tritons)
        self.decisions, self.counter = DecisionsInMemory(), CountedPlaces()
        options = PoolOptions(
            name=DEFAULT_POOL,
            source=self.source,
            connect=lambda address: self.tritons[address.address],
            policy=Policy(policy),
            **given,
        )
        self.pools = PoolSet(
            [options],
            self.counter,
            self.decisions,
            clock=asyncio.get_running_loop().time,
            random=Random(1),
        )
        self.engine = PooledEngine(self.pools, self.counter)
        self.tokenizer = PooledTokenizer(self.pools)

    async def __aenter__(self) -> PoolStand:
        await self.engine.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.__aexit__(None, None, None)

    @property
    def pool(self) -> Pool:
        return self.pools.pools[DEFAULT_POOL]

    def endpoint(self, address: str) -> Endpoint:
        return self.pool.endpoints[address]

    def states(self) -> dict[str, EndpointState]:
        return {one.address: one.state for one in self.pools.endpoints()}

    def cards(self) -> list[ModelCard]:
        """One for each build that is known."""
        return [
            replace(CARD, facts=one.facts, capabilities=one.capabilities)
            for one in self.pools.models()
        ]

    def request(self, **fields: object) -> EngineRequest:
        usual = {"id": "r1", "text": "hi", "timeout_s": 60.0, "sampling": Sampling()}
        if "model" not in fields:
            usual["model"] = self.cards()[0]
        return EngineRequest(**{**usual, **fields})

    async def answered(self, **fields: object) -> str:
        """The text of a whole answer."""
        found = await self.deltas(**fields)
        return b"".join(part for one in found for part in one.token_bytes).decode()

    async def deltas(self, **fields: object) -> list[TokenDelta]:
        """Reads no more after the last one, as the proxy does."""
        found = []
        async with aclosing(self.engine.generate(self.request(**fields))) as stream:
            async for delta in stream:
                found.append(delta)
                if delta.finish is not None:
                    break
        return found

    async def begun(self, **fields: object) -> AsyncGenerator[TokenDelta, None]:
        """A stream whose first delta was read."""
        stream = self.engine.generate(self.request(**fields))
        await anext(stream)
        return stream

    async def lose(self, times: int, **fields: object) -> None:
        for _ in range(times):
            try:
                await self.deltas(**fields)
            except ModelUnavailable:
                continue

    @property
    def outstanding(self) -> tuple[int, int]:
        """Streams and tokens of all endpoints."""
        found = self.pools.endpoints()
        return sum(one.streams for one in found), sum(one.outstanding_tokens for one in found)


async def checked(times: float = 1) -> None:
    """Every endpoint was checked so often at least, and decisions were obeyed."""
    await asyncio.sleep(times * A_CHECK_S)
