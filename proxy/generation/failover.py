"""What becomes of an engine stream that is lost: whether, where and with what another continues it.

Used by engine_stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import (
    EndpointDrains,
    EngineStalled,
    GuidePending,
    ModelUnavailable,
    Preempted,
    ProxyError,
    RateLimited,
)
from proxy.domain.interrupt import Cause, Interrupt
from proxy.domain.output import FinishReason
from proxy.domain.record import RequestRecord
from proxy.domain.scheduling import FreeScheduler, Scheduler
from proxy.generation import continuation
from proxy.generation.continuation import Obstacle
from proxy.generation.loss_count import LossCount
from proxy.generation.resending import Attempt, Resending
from proxy.generation.row_permit import RowPermit
from proxy.generation.time_limits import TimeLimits, TimeWatch

logger = structlog.get_logger(__name__)

Loss = ModelUnavailable | EngineStalled | RateLimited
WORDS = {
    Cause.LOST: "endpoint lost",
    Cause.STALLED: "endpoint silent",
    Cause.DRAINED: "endpoint drains",
    Cause.PREEMPTED: "preempted",
}
LONGEST_PAUSE_S = 5.0  # before an engine is asked again whose queue was full


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationLimits:
    """most: how often one stream is continued after losses; 0: one that has begun never is.

    allows_inexact: the rest of an answer may differ from the one that would have come. within_s:
    how long it waits for an endpoint.
    """

    most: int = 64
    allows_inexact: bool = False
    within_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMeans:
    """What all engine streams share."""

    resending: Resending
    limits: TimeLimits
    continuing: ContinuationLimits = field(default_factory=ContinuationLimits)
    scheduler: Scheduler = field(default_factory=FreeScheduler)


@dataclass(slots=True)
class Given:
    """What the reader of a stream has of it. ids: of all its tokens, an echoed prompt's too.

    echoed: how many tokens of the prompt the stream begins with.
    """

    ids: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    echoed: int = 0
    has_begun: bool = False

    @property
    def answer_ids(self) -> list[int]:
        return self.ids[self.echoed :]


class Failover:
    """Of one stream. tokens: how many of its answer the reader has counted.

    part: what an engine is sent now. finish: set where the lost engine had generated the whole
    answer, and only had not said so. repeats: how many tokens of the part the reader has already.
    """

    def __init__(
        self,
        request: EngineRequest,
        means: StreamMeans,
        report: RequestRecord,
        given: Given,
        tokens: Callable[[], int],
    ) -> None:
        self._obstacle = continuation.obstacle(request)
        self._most = most = means.continuing.most
        self.is_exact = bool(most) and self._obstacle is None
        keeps_ids = bool(most) and _is_allowed(self._obstacle, means.continuing)
        self._request = _kept(request, is_exact=self.is_exact) if keeps_ids else request
        self.part = self._request
        self.finish: FinishReason | None = None
        self.repeats = self.parts = 0
        self._means = means
        self._report = report
        self._given = given
        self._tokens = tokens
        self._tokens_before = tokens()
        self._attempt = Attempt()
        self._losses = LossCount(most=most, most_in_a_row=max(means.resending.most, 1))
        self._lost: tuple[Cause, float] | None = None

    def interrupt(self, error: Exception) -> None:
        if self.part.interrupt is not None:
            self.part.interrupt.fire(error)

    @property
    def endpoint(self) -> str | None:
        """Where the part runs, if it can be moved from there."""
        return None if self.part.interrupt is None else self.part.interrupt.endpoint

    def can_move(self) -> bool:
        """Whether another endpoint can continue now."""
        endpoint = self.endpoint
        return endpoint is not None and self._means.resending.has_another(
            self._request, self._attempt.avoids | {endpoint}
        )

    async def next_part(self, error: Loss, watch: TimeWatch, row: RowPermit) -> None:
        """Makes `part` what the next engine is sent, when there is one.

        Raises:
            ProxyError: `error`, or why the stream is not continued.
        """
        cause = cause_of(error)
        if isinstance(error, GuidePending):
            raise error
        if cause is Cause.LOST and not self._given.has_begun:
            await self._resend(error, watch)
            return
        try:
            self._check(error, cause)
            self._lost = (cause, asyncio.get_running_loop().time())
            await self._wait(error, cause, watch, row)
        except ProxyError:
            if self._most and self._given.has_begun:
                self._report.uncontinued.append(cause)
            raise
        self._continue(error, cause, watch)

    def see_first(self) -> None:
        """The first delta of the part came."""
        if self._lost is not None:
            cause, since = self._lost
            self._report.pauses.append((cause, asyncio.get_running_loop().time() - since))
            self._lost = None

    async def _resend(self, lost: Loss, watch: TimeWatch) -> None:
        if not isinstance(lost, ModelUnavailable):
            raise lost
        self._avoid()
        attempt, request, resend = self._attempt, self._request, self._means.resending.resend
        await resend(lost, attempt, request, self._report, since=watch.began)
        self._begin(request, f"resent{attempt.number}", watch)

    def _check(self, error: Loss, cause: Cause) -> None:
        """Raises: the stream cannot be continued, or was lost too often."""
        given, obstacle = self._given, self._obstacle
        if not self._most:
            raise error
        if cause is Cause.STALLED and not (given.has_begun and self.can_move()):
            raise error
        if obstacle is not None and not _is_allowed(obstacle, self._means.continuing):
            raise _refused(error, f". It cannot be continued, because {obstacle.reason}")
        if len(given.answer_ids) != self._tokens() - self._tokens_before:
            raise error  # the engine did not report its ids
        if cause is Cause.PREEMPTED or isinstance(error, RateLimited):
            return
        if self._losses.add(len(given.ids), is_fault=cause is not Cause.DRAINED):
            self._attempt.avoids = frozenset()
        if self._losses.are_too_many:
            raise _refused(error, f", which was continued {self._losses.total - 1} times already")

    async def _wait(self, error: Loss, cause: Cause, watch: TimeWatch, row: RowPermit) -> None:
        """Until an engine can be sent the next part."""
        given, request = self._given, self._request
        self.finish = continuation.known_end(request, given.answer_ids, given.prompt_tokens)
        if self.finish is not None:
            return
        if cause is Cause.PREEMPTED:
            row.release()
            await watch.within(row.acquire_again())
        elif isinstance(error, RateLimited):
            await watch.within(asyncio.sleep(min(error.retry_after_s, LONGEST_PAUSE_S)))
        else:
            self._avoid()
            self._attempt.has_begun = given.has_begun
            find = self._means.resending.find_endpoint
            tried = max(self._losses.in_a_row - 1, 0)
            await find(error, self._attempt, request, since=watch.began, tried=tried)

    def _continue(self, lost: Loss, cause: Cause, watch: TimeWatch) -> None:
        given, ids = self._given, self._given.answer_ids
        _note(self._report, cause, has_begun=given.has_begun)
        logger.info(
            "stream continues",
            request_id=self._request.id,
            cause=cause.value,
            lost=lost.endpoint if isinstance(lost, ModelUnavailable) else self.endpoint,
            tokens=len(ids),
        )
        self.repeats = 0 if ids else len(given.ids)
        request = continuation.continued(self._request, ids, given.prompt_tokens)
        self._begin(request, f"continued{self.parts + 1}", watch)

    def _begin(self, request: EngineRequest, suffix: str, watch: TimeWatch) -> None:
        """Each part has its own id: engines remember stops by it, and a lost part was stopped."""
        left_s = watch.began + request.timeout_s - asyncio.get_running_loop().time()
        self.parts += 1
        self.part = replace(
            request,
            id=f"{request.id}-{suffix}",
            timeout_s=max(left_s, 0.001),
            avoids=self._attempt.avoids,
            interrupt=Interrupt() if self.is_exact else None,
        )

    def _avoid(self) -> None:
        if self.endpoint is not None:
            self._attempt.avoids |= {self.endpoint}


def _is_allowed(obstacle: Obstacle | None, limits: ContinuationLimits) -> bool:
    return obstacle is None or (limits.allows_inexact and not obstacle.is_final)


def _kept(request: EngineRequest, *, is_exact: bool) -> EngineRequest:
    interrupt = Interrupt() if is_exact else None
    return replace(request, keeps_ids=True, interrupt=interrupt)


def _note(report: RequestRecord, cause: Cause, *, has_begun: bool) -> None:
    report.preempted += cause is Cause.PREEMPTED
    if has_begun:
        report.continued += 1
        report.notes.append(f"continued {report.continued} ({WORDS[cause]})")


def cause_of(error: Loss) -> Cause:
    match error:
        case Preempted():
            return Cause.PREEMPTED
        case EndpointDrains():
            return Cause.DRAINED
        case EngineStalled():
            return Cause.STALLED
    return Cause.LOST


def _refused(lost: Loss, why: str) -> ModelUnavailable:
    error = ModelUnavailable(
        f"The model server was lost in the middle of this answer{why}. Send the request again.",
        detail=lost.detail,
    )
    error.__cause__ = lost
    return error
