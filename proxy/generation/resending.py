"""Sends a request again when Triton dies before its first token. Used by service and
answer_streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from typing_extensions import Self

from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.errors import GuidePending, ModelUnavailable
from triton_openai.proxy.domain.generation import Report
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import TokenDelta
from triton_openai.proxy.models.recovery_queue import RecoveryQueue
from triton_openai.proxy.models.registry import Registry

Result = TypeVar("Result")
Deltas = AsyncGenerator[TokenDelta, None]
# (the request, the time of the event loop from which its deadline counts) -> its deltas
Send = Callable[[EngineRequest, float], Deltas]
TryGuide = Callable[[EngineRequest], Awaitable[None]]


class ResendCounter(Protocol):
    """Telemetry's side."""

    def resent(self, card: ModelCard) -> None: ...


class Alternatives(Protocol):
    """See domain.engine.Engine."""

    def has_another(self, request: EngineRequest) -> bool: ...


@dataclass(slots=True)
class Attempt:
    """One try of a request. number: of those before it. avoids: endpoints that were lost with it
    and have not been ready since.
    """

    number: int = 0
    avoids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resending:
    """What the streams of all requests share.

    most: how often one stream is sent again, so that a request that kills Triton comes to an end.
    whole_s: the time limit of a request, waiting included.
    """

    registry: Registry
    recovery_queue: RecoveryQueue
    alternatives: Alternatives
    counter: ResendCounter
    most: int
    whole_s: float

    async def retried(
        self,
        begin: Callable[[Attempt], Awaitable[Result]],
        request: EngineRequest,
        report: Report,
        *,
        since: float,
    ) -> Result:
        """What `begin` returns. Where it loses Triton, calls it again: at once if another endpoint
        serves the model, else when one is back.

        Args:
            since: the time of the event loop from which `whole_s` counts.

        Raises:
            ModelUnavailable: Triton died too often, stays away, or serves another build.
        """
        attempt = Attempt()
        while True:
            try:
                return await begin(attempt)
            except GuidePending:
                raise
            except ModelUnavailable as error:
                lost = error
            self._check_tries(lost, attempt)
            if lost.endpoint is not None:
                attempt.avoids |= {lost.endpoint}
            if not self._has_another(request, attempt):
                await self._wait(request.model, lost, since)
                if not self._has_another(request, attempt):
                    attempt.avoids = frozenset()
            attempt.number += 1
            report.resends += 1
            self.counter.resent(request.model)

    def _has_another(self, request: EngineRequest, attempt: Attempt) -> bool:
        return self.alternatives.has_another(replace(request, avoids=attempt.avoids))

    def _check_tries(self, lost: ModelUnavailable, attempt: Attempt) -> None:
        if not self.most:
            raise lost
        if attempt.number == self.most:
            raise ModelUnavailable(
                f"The model server was lost {self.most + 1} times before the first token of this "
                "request, which is not sent to it again.",
                detail=lost.detail,
            ) from lost

    async def _wait(self, card: ModelCard, lost: ModelUnavailable, since: float) -> None:
        """Until the model is ready."""
        is_back = False
        while not is_back:
            left_s = since + self.whole_s - asyncio.get_running_loop().time()
            if not await self.recovery_queue.wait(max(left_s, 0.0)):
                raise ModelUnavailable(
                    "The model server was lost before the first token of this request, and was not "
                    f"ready again within the request's {self.whole_s:g} seconds. Try again later.",
                    detail=f"{lost.detail}; since then: {self.registry.why_not_ready}",
                ) from lost
            if not self.registry.has_build(card):
                raise ModelUnavailable(
                    "The model server was lost before the first token of this request, and came "
                    "back with another build of the model. Send the request again."
                ) from lost
            is_back = self.registry.is_available(card)


class ResentStream:
    """The deltas of one engine request, which may be sent again until the first delta is there.

    From then on `__anext__` is the engine stream's own, so that a token costs no more.

    Args:
        try_guide: called before the request is sent again: a Triton that came back has not
            compiled its guide yet.
    """

    def __init__(
        self,
        resending: Resending,
        send: Send,
        try_guide: TryGuide,
        request: EngineRequest,
        report: Report,
    ) -> None:
        self._resending = resending
        self._report = report
        self._send = send
        self._try_guide = try_guide
        self._request = request
        self._since = asyncio.get_running_loop().time()
        self._deltas: Deltas | None = None
        self._next: Callable[[], Awaitable[TokenDelta]] = self._first

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[TokenDelta]:
        return self._next()

    async def aclose(self) -> None:
        if self._deltas is not None:
            await self._deltas.aclose()

    async def _first(self) -> TokenDelta:
        """Raises as `Resending.retried` and the engine do."""
        delta = await self._resending.retried(
            self._begin, self._request, self._report, since=self._since
        )
        assert self._deltas is not None  # the delta is from there
        self._next = self._deltas.__anext__
        return delta

    async def _begin(self, attempt: Attempt) -> TokenDelta:
        """Each request has its own id: engines remember stops by it, and a lost one was stopped."""
        request = self._request
        if attempt.number:
            left_s = self._since + request.timeout_s - asyncio.get_running_loop().time()
            request = replace(
                request,
                id=f"{request.id}-resent{attempt.number}",
                timeout_s=max(left_s, 0.001),
                avoids=attempt.avoids,
            )
            await self._try_guide(request)
        self._deltas = self._send(request, self._since)
        return await anext(self._deltas)
