"""A double of domain.engine's Engine whose tokens come when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from proxy.domain.engine import EngineRequest
from proxy.domain.output import TokenDelta


class SteppedEngine:
    """Gives the deltas to each request, one for each `step`."""

    def __init__(self, deltas: Iterable[TokenDelta]) -> None:
        self.deltas = list(deltas)
        self.requests: list[EngineRequest] = []
        self.closed_early = 0
        self.ended = asyncio.Event()
        self._steps = asyncio.Semaphore(0)

    async def __aenter__(self) -> SteppedEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self._steps.release()

    def finish(self) -> None:
        self.step(len(self.deltas))

    def has_another(self, request: EngineRequest) -> bool:
        return False

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        self.requests.append(request)
        is_done = False
        try:
            for delta in self.deltas:
                await self._steps.acquire()
                is_done = delta.finish is not None
                yield delta
        finally:
            self.closed_early += not is_done
            self.ended.set()
