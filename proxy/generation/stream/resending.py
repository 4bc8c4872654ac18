"""Where a request goes when it has lost its Triton: to another endpoint, or to one that is back.

Used by service and engine_stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from proxy.domain.engine import Engine, EngineRequest
from proxy.domain.errors import GuidePending, ModelUnavailable, ServiceError
from proxy.domain.model import ModelCard
from proxy.domain.record import RequestRecord, StageName, stage
from proxy.models.readiness import RecoveryQueue
from proxy.models.registry import Registry

BEFORE_FIRST = "before the first token of this request"
# Before an endpoint is asked for a third time; doubled with each further time. Triton says that it
# is ready when a Python model of its has died, until it is restarted.
PAUSE_S = 1.0
LONGEST_PAUSE_S = 8.0


@dataclass(slots=True)
class Attempt:
    """One try of a request. number: of those before it. avoids: endpoints that were lost with it
    and have not been ready since. has_begun: its caller has a part of the answer.
    """

    number: int = 0
    avoids: frozenset[str] = frozenset()
    has_begun: bool = False

    @property
    def place(self) -> str:
        """Where in an answer Triton was lost: for messages."""
        return "in the middle of this answer" if self.has_begun else BEFORE_FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class Resending:
    """What the streams of all requests share.

    most: how often one stream is sent again, so that a request that kills Triton comes to an end.
    whole_s: the time limit of a request, waiting included. begun_s: how long a stream waits for an
    endpoint that has begun.
    """

    registry: Registry
    recovery_queue: RecoveryQueue
    engine: Engine
    most: int
    whole_s: float
    begun_s: float

    async def retried(
        self,
        begin: Callable[[], Awaitable[None]],
        request: EngineRequest,
        record: RequestRecord,
        *,
        since: float,
    ) -> None:
        """Calls `begin`, and where that loses Triton, calls it again: at once if another endpoint
        serves the model, else when one is back.

        Args:
            since: the time of the event loop from which `whole_s` counts.

        Raises:
            ModelUnavailable: Triton died too often, stays away, or serves another build.
        """
        attempt = Attempt()
        while True:
            try:
                await begin()
                return
            except GuidePending:
                raise
            except ModelUnavailable as error:
                lost = error
            await self.resend(lost, attempt, request, record, since=since)

    async def resend(
        self,
        lost: ModelUnavailable,
        attempt: Attempt,
        request: EngineRequest,
        record: RequestRecord,
        *,
        since: float,
    ) -> None:
        """Makes `attempt` the next one of a request without a token. Raises as `retried`."""
        self._check_tries(lost, attempt)
        await self.find_endpoint(lost, attempt, request, since=since, tried=attempt.number)
        attempt.number += 1
        record.resends += 1

    async def find_endpoint(
        self,
        lost: ServiceError,
        attempt: Attempt,
        request: EngineRequest,
        *,
        since: float,
        tried: int,
    ) -> None:
        """Returns when there is one.

        Args:
            tried: how often the request was sent again already without getting further.

        Raises:
            ModelUnavailable: Triton stays away, or serves another build.
        """
        if isinstance(lost, ModelUnavailable) and lost.endpoint is not None:
            attempt.avoids |= {lost.endpoint}
        if self.has_another(request, attempt.avoids):
            return
        with stage(StageName.WAIT):
            if tried:
                await asyncio.sleep(min(PAUSE_S * 2 ** (tried - 1), LONGEST_PAUSE_S))
            await self._wait(request.model, lost, attempt, since)
            if not self.has_another(request, attempt.avoids):
                attempt.avoids = frozenset()

    def has_another(self, request: EngineRequest, avoids: frozenset[str]) -> bool:
        return self.engine.has_another(replace(request, avoids=avoids))

    def _check_tries(self, lost: ModelUnavailable, attempt: Attempt) -> None:
        if not self.most:
            raise lost
        if attempt.number == self.most:
            raise ModelUnavailable(
                f"The model server was lost {self.most + 1} times {attempt.place}, which is not "
                "sent to it again.",
                detail=lost.detail,
            ) from lost

    async def _wait(
        self, card: ModelCard, lost: ServiceError, attempt: Attempt, since: float
    ) -> None:
        """Until the model is ready."""
        loop, is_back = asyncio.get_running_loop(), False
        whole_s = since + self.whole_s - loop.time()
        most_s = min(whole_s, self.begun_s) if attempt.has_begun else whole_s
        ends = loop.time() + most_s
        while not is_back:
            if not await self.recovery_queue.wait(max(ends - loop.time(), 0.0)):
                within = f"the request's {self.whole_s:g}" if most_s == whole_s else f"{most_s:g}"
                raise ModelUnavailable(
                    f"The model server was lost {attempt.place}, and was not ready again within "
                    f"{within} seconds. Try again later.",
                    detail=f"{lost.detail}; since then: {self.registry.why_not_ready}",
                ) from lost
            if not self.registry.has_build(card):
                raise ModelUnavailable(
                    f"The model server was lost {attempt.place}, and came back with another build "
                    "of the model. Send the request again."
                ) from lost
            is_back = self.registry.is_available(card)
