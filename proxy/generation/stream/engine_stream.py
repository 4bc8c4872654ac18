"""The engine's deltas for one choice, which survive the loss of their engine: one state machine.

             row              first delta               last delta
    QUEUED --------> SENT --------------------> STREAMING ----------> ENDED
      ^              ^  |                           |                   ^
      |              |  | the endpoint is lost,     |                   |
      |              |  | silent or draining,       |                   |
      |  preempted:  |  | or the row is needed      |                   |
      |  row given   |  v                           v                   |
      +-------------- LOST <------------------------+                   |
         back           |  cannot be continued, or its time is over     |
                        +-----------------------------------------------+

Before QUEUED, a stream with a guide is UNTRIED: it holds no row while Triton compiles the guide.
QUEUED waits in the fair queue, and SENT for the first delta of a part: what one endpoint is sent
of the answer. LOST has closed its part, so that the engine is told to stop. If the reader has
nothing yet, the part is sent again as it was; otherwise another part continues after the last
delta, and the reader sees a pause. ENDED has given everything back. `deltas` may be closed in
every state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from enum import Enum
from secrets import token_hex
from sys import getsizeof

import structlog

from proxy.access.guide_precheck import GuidePrecheck
from proxy.domain.engine import HIGHEST_PRIORITY, Engine, EngineRequest
from proxy.domain.errors import (
    EndpointDrains,
    EngineStalled,
    ErrorCode,
    GuidePending,
    ModelUnavailable,
    Preempted,
    ProxyError,
    RateLimited,
    ServiceError,
)
from proxy.domain.identity import current_caller
from proxy.domain.image import Image
from proxy.domain.interrupt import Cause, Interrupt
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.record import RequestRecord, Stage, StageName, Wait
from proxy.domain.request import GenerationRequest
from proxy.domain.scheduling import (
    FREE_PERMIT,
    FreeScheduler,
    Permit,
    Scheduler,
    Standing,
    Ticket,
)
from proxy.generation.choice.choice_cost import ChoiceCost
from proxy.generation.shadow import ShadowTraffic
from proxy.generation.stream import continuation
from proxy.generation.stream.continuation import By, ContinuationLimits
from proxy.generation.stream.time_limits import TimeLimits, TimeWatch
from proxy.models.readiness import RecoveryQueue
from proxy.models.registry import Registry
from proxy.triton import local_tokenizer

logger = structlog.get_logger(__name__)

CHARACTERS_A_TOKEN = 4  # bytes of UTF-8; the engine's own count replaces the estimate
ID_BYTES = 8  # of a tuple's reference; small integers are shared
FULL_PAUSE_S = 5.0  # at most, before an engine is asked again whose queue was full
# Before an endpoint is asked for a third time; doubled with each further time. Triton says that it
# is ready when a Python model of its has died, until it is restarted.
PAUSE_S = 1.0
LONGEST_PAUSE_S = 8.0
BEFORE_FIRST = "before the first token of this request"
PROGRESS_TOKENS = 8  # with fewer new ones, a loss is another one in a row
NO_DELTA = TokenDelta(())
CUT_OFF = "The model server ended this answer too early. Send the request again."
UNFINISHED = "the engine's stream ended without a finish reason"
OTHER_TOKENS = "no text has exactly its tokens"
CUT_CHARACTER = "it was cut within a character"
OTHER_ANSWER = (
    "The model server was lost in the middle of this answer, and the next one generated other "
    "tokens in place of those that had come. Send the request again."
)
LOSSES = (ModelUnavailable, EngineStalled, RateLimited)
Loss = ModelUnavailable | EngineStalled | RateLimited
WORDS = {
    Cause.LOST: "endpoint lost",
    Cause.STALLED: "endpoint silent",
    Cause.DRAINED: "endpoint drains",
    Cause.PREEMPTED: "preempted",
}

Deltas = AsyncGenerator[TokenDelta, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMeans:
    """What all engine streams share.

    max_resends: how often one stream is sent again that was lost before its first token, so that a
    request that kills Triton comes to an end.
    """

    registry: Registry
    recovery_queue: RecoveryQueue
    engine: Engine
    guide_precheck: GuidePrecheck
    shadows: ShadowTraffic
    limits: TimeLimits
    max_resends: int
    continuing: ContinuationLimits = field(default_factory=ContinuationLimits)
    scheduler: Scheduler = field(default_factory=FreeScheduler)


class State(Enum):
    """See the module's drawing."""

    UNTRIED = "untried"
    QUEUED = "queued"
    SENT = "sent"
    STREAMING = "streaming"
    LOST = "lost"
    ENDED = "ended"


class EngineStream:
    """The deltas of one engine request.

    Args:
        asked: the caller's request, which competes for rows.
        cost: the choice's. The reader ends it with the last delta; the stream's own tokens are
            those since now.
        has_begun: the answer has earlier streams, so that this one is not refused a row.
    """

    def __init__(
        self,
        asked: GenerationRequest,
        request: EngineRequest,
        means: StreamMeans,
        record: RequestRecord,
        cost: ChoiceCost,
        *,
        has_begun: bool = False,
    ) -> None:
        # a guide is tried before the wait for a row, unless no endpoint can try it
        is_tried_first = request.constraint is not None and not means.registry.is_held(
            request.model
        )
        self._state = State.UNTRIED if is_tried_first else State.QUEUED
        self._is_guide_tried = is_tried_first or request.constraint is None
        self._means = means
        self._record = record
        self._cost = cost
        self._tokens_before = cost.tokens
        self._caller = asked.caller

        self._log = asked.delta_log
        if self._log is not None:  # other processes may have used the id, or may use it later
            request = replace(request, id=f"{request.id}-{token_hex(4)}")
        can_continue = bool(means.continuing.most)
        self._obstacle = continuation.obstacle(request)
        is_ours = request.model.facts.adopted is None
        self._is_exact = can_continue and self._obstacle is None and is_ours
        self._by = By.IDS if is_ours else continuation.way_of(request)
        self._keeps = can_continue and means.continuing.allow(self._obstacle)
        self._keeps_ids = self._keeps and self._by is By.IDS
        # what a model of others has said, and how many tokens at its end show no text yet
        self._said: list[bytes] | None = [] if self._keeps and not is_ours else None
        self._unsaid = 0
        self._request = request
        self._part, self._parts = request, 0
        self._interrupt = Interrupt(can_move=self._is_exact)  # of the part
        self._source: Deltas | None = None

        # its place among the streams that want the model's rows
        self._ticket = _ticket(asked, request, may_yield=self._is_exact, has_begun=has_begun)
        self._permit: Permit = FREE_PERMIT
        self._has_permit = self._has_row = self._must_yield = False
        self._waited_s = 0.0  # in all: a stream that yields waits again

        # what the reader has
        self._has_deltas = False
        self._ids: list[int] = []  # of all tokens, an echoed prompt's too
        self._prompt_tokens = 0
        self._echoed = 0  # tokens of the prompt that the stream begins with
        self._repeats = 0  # tokens of the part that the reader has already
        self._again: bytes | None = None  # what it has of their text, from a model of others
        self._finish: FinishReason | None = None  # the engine was lost after the whole answer

        # losses. In a row: without PROGRESS_TOKENS new tokens between them
        self._resends = 0
        self._avoids: frozenset[str] = frozenset()  # endpoints that were lost, and not ready since
        self._pause: tuple[Cause, float] | None = None  # its beginning; ends with the next delta
        self._losses = self._losses_in_a_row = self._tokens_at_loss = 0

    async def deltas(self) -> Deltas:
        """To one task, up to the one with a finish reason. Each delta's ids are kept here, which is
        all that a continuation costs.

        Raises:
            ProxyError: as the engine and the scheduler do, or why the stream is not continued.
        """
        self._watch = watch = TimeWatch(self._means.limits, self._request.timeout_s)
        keep, delta = self._ids.extend, NO_DELTA
        lost: Loss | None = None
        try:
            if self._log is not None:
                for delta in self._log.begin_stream():
                    self._replay(delta)
                    yield delta
                    if delta.finish is not None:
                        return
                self._continue_replayed()
                delta = NO_DELTA
            while True:
                try:
                    if self._state is State.UNTRIED:
                        with Stage(StageName.GUIDE_CHECK, self._record):
                            await watch.within(self._try_guide())
                        self._state = State.QUEUED
                    elif self._state is State.QUEUED:
                        await watch.within(self._acquire())
                        if isinstance(lost, Preempted):
                            await self._continue(lost)
                        self._state = State.SENT
                    elif self._state is State.SENT:
                        delta = await self._first_delta(watch)
                        self._state = State.STREAMING
                    elif self._state is State.LOST and lost is not None:
                        self._state = await self._recover(lost, watch)
                    else:
                        source = self._source or _nothing()
                        while True:
                            keep(delta.token_ids)
                            if self._said is not None:
                                self._note_text(delta)
                            if self._log is not None:
                                self._log.add(delta)
                            yield delta
                            watch.wait()
                            try:
                                delta = await anext(source)
                            except asyncio.CancelledError:
                                watch.raise_if_over()
                                raise
                            watch.is_waiting = False
                except StopAsyncIteration:
                    if delta.finish is not None:
                        return
                    lost = ModelUnavailable(CUT_OFF, detail=UNFINISHED)
                    await self._lose(lost, watch)
                except LOSSES as error:
                    if self._state in (State.QUEUED, State.LOST):
                        raise
                    lost = error
                    await self._lose(error, watch)
        except ProxyError:
            if lost is not None and self._state in (State.LOST, State.QUEUED):
                self._count_failure(lost)
            raise
        finally:
            self._state = State.ENDED
            watch.end()
            self._cost.end_stream(delta.times)
            try:
                if self._source is not None:
                    await self._source.aclose()
            finally:
                self._permit.release()
                self._permit = FREE_PERMIT  # which would refer to this stream

    async def _first_delta(self, watch: TimeWatch) -> TokenDelta:
        """SENT: opens the part. Returns its first delta that the reader has not seen yet."""
        part = self._part
        if self._finish is not None:
            self._count_continued()
            self._source = None
            return TokenDelta((), finish=self._finish)
        if self._parts or not self._is_guide_tried:  # a Triton that came has not compiled its guide
            await self._try_guide()
        if self._must_yield:
            raise _preempted()
        sent = replace(
            part,
            keeps_ids=self._keeps_ids,
            interrupt=self._interrupt,
            priority=_urgent(part) if self._permit.took_over else part.priority,
            stage=self._cost.begin(part.id),
        )
        self._source = source = self._means.engine.generate(sent)
        if not self._has_deltas:  # shadows are compared with whole answers
            self._source = source = self._means.shadows.mirrored(sent, source)
        watch.begin(self._interrupt)
        delta = await _next(source, watch)
        self._cost.see_first(delta)
        if self._is_exact:
            watch.see_first(self._can_move)
        prompt_tokens, cached_tokens = delta.prompt_tokens or 0, delta.cached_tokens or 0
        # An engine with `resume_from` counts the cached tokens of the prompt alone. If all of them
        # are cached, what was generated is, too.
        is_cached = self._has_deltas and 0 < prompt_tokens <= cached_tokens
        if not self._has_deltas:
            self._has_deltas = True
            self._prompt_tokens = prompt_tokens
            self._echoed = prompt_tokens if part.echoes_prompt else 0
        elif delta.prompt_tokens is not None:  # the reader has counted the prompt
            why = Cause.LOST if self._pause is None else self._pause[0]
            self._record.leave_uncharged(why.value, prompt_tokens + self._repeats)
            delta = replace(delta, prompt_tokens=None, cached_tokens=None)
        context_tokens = self._prompt_tokens + len(self._answer_ids)
        if not self._has_row:  # a stream that loses its engine keeps its permit
            self._has_row = True
            self._permit.see_prompt(0 if is_cached else max(context_tokens - cached_tokens, 0))
        self._count_continued()
        repeats, dropped = self._repeats, b""
        while repeats:
            count, known = len(delta.token_bytes), self._ids[-repeats:]
            if delta.token_ids[:repeats] != tuple(known[: len(delta.token_ids)]):
                raise ServiceError(OTHER_ANSWER, code=ErrorCode.MODEL_UNAVAILABLE)
            dropped += b"".join(delta.token_bytes[:repeats])
            if count > repeats or delta.finish is not None:
                break
            repeats -= count
            delta = await _next(source, watch)
        return self._behind_repeated(delta, repeats, dropped) if self._repeats else delta

    def _replay(self, delta: TokenDelta) -> None:
        """Notes a delta of the process that began the stream."""
        if not self._has_deltas:
            self._has_deltas = True
            self._prompt_tokens = delta.prompt_tokens or 0
        self._ids.extend(delta.token_ids)

    def _continue_replayed(self) -> None:
        """Makes the part that continues what was replayed, if anything was.

        Raises:
            ModelUnavailable: it cannot be continued.
        """
        if not self._has_deltas:
            return
        if not self._keeps_ids or self._said is not None:
            why = "the server is configured so" if self._obstacle is None else self._obstacle.reason
            why = why if self._said is None else "the model takes no token ids"
            raise ModelUnavailable(
                "The proxy that generated this answer was lost in the middle of it. It cannot be "
                f"continued, because {why}. Send the request again."
            )
        ids = self._answer_ids
        self._ticket = replace(self._ticket, has_begun=True)
        self._finish = continuation.known_end(self._request, ids, self._prompt_tokens)
        request = continuation.continued(self._request, ids, self._prompt_tokens)
        self._begin_part(request, f"continued{self._parts + 1}")

    async def _lose(self, error: Loss, watch: TimeWatch) -> None:
        """SENT or STREAMING -> LOST. Raises `error` if the tokenizer has not compiled its guide."""
        self._cost.end(cause=cause_of(error), last_at=watch.waiting_since)
        watch.leave()
        if self._source is not None:
            await self._source.aclose()
        if isinstance(error, GuidePending):
            raise error
        self._state = State.LOST

    async def _recover(self, error: Loss, watch: TimeWatch) -> State:
        """LOST: waits until an engine can be sent the next part, or gives the row back.

        Raises:
            ProxyError: `error`, or why the stream is not continued.
        """
        cause = cause_of(error)
        if cause is Cause.LOST and not self._has_deltas:
            if not isinstance(error, ModelUnavailable):
                raise error
            await self._resend(error, watch)
            return State.SENT if self._has_permit else State.UNTRIED
        self._check(error, cause)
        self._pause = (cause, asyncio.get_running_loop().time())
        self._finish = continuation.known_end(self._request, self._answer_ids, self._prompt_tokens)
        if self._finish is None:
            if cause is Cause.PREEMPTED:
                self._permit.release()
                return State.QUEUED
            if isinstance(error, RateLimited):
                await watch.within(asyncio.sleep(min(error.retry_after_s, FULL_PAUSE_S)))
            else:
                tried = max(self._losses_in_a_row - 1, 0)
                await self._find_endpoint(error, watch, tried=tried)
        await self._continue(error)
        return State.SENT

    async def _resend(self, lost: ModelUnavailable, watch: TimeWatch) -> None:
        """Begins the same part again. The reader has received no delta of it."""
        most = self._means.max_resends
        if not most:
            raise lost
        if self._resends == most:
            raise ModelUnavailable(
                f"The model server was lost {most + 1} times {BEFORE_FIRST}, which is not sent to "
                "it again.",
                detail=lost.detail,
            ) from lost
        await self._find_endpoint(lost, watch, tried=self._resends)
        self._resends += 1
        self._record.resends += 1
        self._begin_part(self._request, f"resent{self._resends}")

    async def _find_endpoint(self, lost: ServiceError, watch: TimeWatch, *, tried: int) -> None:
        """Returns when there is one: at once if another endpoint serves the model, else when one is
        back.

        Args:
            tried: how often the request was sent again already without getting further.

        Raises:
            ModelUnavailable: Triton stays away, or serves another build.
        """
        self._avoid(self._endpoint)
        if isinstance(lost, ModelUnavailable):
            self._avoid(lost.endpoint)
        if self._has_another(self._avoids):
            return
        with Stage(StageName.WAIT, self._record):
            if tried:
                await asyncio.sleep(min(PAUSE_S * 2 ** (tried - 1), LONGEST_PAUSE_S))
            await self._wait(lost, watch)
            if not self._has_another(self._avoids):
                self._avoids = frozenset()

    async def _wait(self, lost: ServiceError, watch: TimeWatch) -> None:
        """Until the model is ready."""
        loop, means, card = asyncio.get_running_loop(), self._means, self._request.model
        has_begun, limit_s = self._has_deltas, self._request.timeout_s
        whole_s = watch.began + limit_s - loop.time()
        most_s = min(whole_s, means.continuing.within_s) if has_begun else whole_s
        ends = loop.time() + most_s
        within = f"the request's {limit_s:g}" if most_s == whole_s else f"{most_s:g}"
        place = "in the middle of this answer" if has_begun else BEFORE_FIRST
        while True:
            if not await means.recovery_queue.wait(max(ends - loop.time(), 0.0)):
                raise ModelUnavailable(
                    f"The model server was lost {place}, and was not ready again within {within} "
                    "seconds. Try again later.",
                    detail=f"{lost.detail}; since then: {means.registry.why_not_ready}",
                ) from lost
            if not means.registry.has_build(card):
                raise ModelUnavailable(
                    f"The model server was lost {place}, and came back with another build of the "
                    "model. Send the request again."
                ) from lost
            if means.registry.is_available(card):
                return

    def _check(self, error: Loss, cause: Cause) -> None:
        """Raises: the stream cannot be continued, or was lost too often."""
        most, obstacle = self._means.continuing.most, self._obstacle
        if not most:
            raise error
        if cause is Cause.STALLED and not (self._has_deltas and self._can_move()):
            raise error
        if obstacle is not None and not self._means.continuing.allow(obstacle):
            raise _refused(error, f". It cannot be continued, because {obstacle.reason}")
        if self._keeps_ids and len(self._answer_ids) != self._tokens:
            raise error  # the engine did not report its ids
        if cause is Cause.PREEMPTED or isinstance(error, RateLimited):
            return
        if self._tokens - self._tokens_at_loss >= PROGRESS_TOKENS:
            self._losses_in_a_row = 0
            self._avoids = frozenset()
        self._losses += 1
        self._losses_in_a_row += cause is not Cause.DRAINED
        self._tokens_at_loss = self._tokens
        if self._losses > most or self._losses_in_a_row > max(self._means.max_resends, 1):
            raise _refused(error, f", which was continued {self._losses - 1} times already")

    async def _continue(self, lost: Loss) -> None:
        """LOST or QUEUED -> SENT: makes the part that continues the answer."""
        ids, record, cause = self._answer_ids, self._record, cause_of(lost)
        if self._said is None or not self._has_deltas:
            self._repeats = 0 if ids else len(self._ids)
            request = continuation.continued(self._request, ids, self._prompt_tokens)
        else:
            request = await self._said_so_far(ids, lost)
        record.preempted += cause is Cause.PREEMPTED
        by = self._by or By.IDS
        if self._has_deltas:
            record.continued += 1
            record.continued_by = by.value
            how = ", by its text" if by is By.TEXT else ""
            record.notes.append(f"continued {record.continued} ({WORDS[cause]}{how})")
        logger.info(
            "stream continues",
            request_id=self._request.id,
            cause=cause.value,
            lost=lost.endpoint if isinstance(lost, ModelUnavailable) else self._endpoint,
            tokens=self._tokens,
            by=by.value,
        )
        self._begin_part(request, f"continued{self._parts + 1}")

    def _begin_part(self, request: EngineRequest, suffix: str) -> None:
        """Each part has its own id: engines remember stops by it, and a lost part was stopped."""
        left_s = self._watch.began + request.timeout_s - asyncio.get_running_loop().time()
        self._parts += 1
        self._part = replace(
            request,
            id=f"{request.id}-{suffix}",
            timeout_s=max(left_s, 0.001),
            avoids=self._avoids,
        )
        self._interrupt = Interrupt(can_move=self._is_exact)

    def _note_text(self, delta: TokenDelta) -> None:
        assert self._said is not None
        text = b"".join(delta.token_bytes)
        self._said.append(text)
        self._unsaid = 0 if text else self._unsaid + len(delta.token_bytes)

    async def _said_so_far(self, ids: list[int], lost: Loss) -> EngineRequest:
        """Makes the request that continues an answer of a model of others. By ids, a greedy engine
        generates those tokens again that no text has.

        Raises:
            ModelUnavailable: others may come in their place, or the text ends within a character.
        """
        said, sampling = b"".join(self._said or ()), self._request.sampling
        if self._by is By.IDS:
            kept = await local_tokenizer.kept(self._request, ids, said)
            self._repeats, self._again = len(ids) - kept.tokens, kept.again
            if self._repeats and not (sampling.temperature == 0 or sampling.top_k == 1):
                raise _refused(lost, f". It cannot be continued, because {OTHER_TOKENS}")
            known = ids[: kept.tokens]
            return continuation.said_so_far(self._request, kept.text, kept.tokens, known)
        self._repeats = 0
        try:
            text = said.decode()
        except UnicodeDecodeError:
            raise _refused(lost, f". It cannot be continued, because {CUT_CHARACTER}") from lost
        return continuation.said_so_far(self._request, text, self._tokens - self._unsaid, ())

    def _behind_repeated(self, delta: TokenDelta, repeats: int, dropped: bytes) -> TokenDelta:
        """The delta without its first tokens. An engine of others reports the text of several
        tokens with the last one: the reader has `again` of it.
        """
        rest, again = delta.behind(repeats), self._again
        if again is None or dropped == again or not rest.token_bytes:
            return rest
        if not (text := dropped + b"".join(rest.token_bytes)).startswith(again):
            raise ServiceError(OTHER_ANSWER, code=ErrorCode.MODEL_UNAVAILABLE)
        shown = (*[b""] * (len(rest.token_bytes) - 1), text[len(again) :])
        return replace(rest, token_bytes=shown)

    def _count_continued(self) -> None:
        """The first delta of the part came."""
        if self._pause is not None:
            cause, since = self._pause
            self._record.pauses.append((cause, asyncio.get_running_loop().time() - since))
            self._pause = None

    def _count_failure(self, lost: Loss) -> None:
        if self._has_deltas and self._means.continuing.most:
            self._record.uncontinued.append(cause_of(lost))

    @property
    def _answer_ids(self) -> list[int]:
        return self._ids[self._echoed :]

    @property
    def _tokens(self) -> int:
        """The number of tokens of the answer that the reader has."""
        return self._cost.tokens - self._tokens_before

    @property
    def _endpoint(self) -> str | None:
        """Where the part runs."""
        return self._interrupt.endpoint

    def _can_move(self) -> bool:
        """Whether another endpoint can continue now."""
        endpoint = self._endpoint
        return endpoint is not None and self._has_another(self._avoids | {endpoint})

    def _has_another(self, avoids: frozenset[str]) -> bool:
        return self._means.engine.has_another(replace(self._request, avoids=avoids))

    def _avoid(self, endpoint: str | None) -> None:
        if endpoint is not None:
            self._avoids |= {endpoint}

    async def _try_guide(self) -> None:
        await self._means.guide_precheck.check(self._part, self._caller)

    async def _acquire(self) -> None:
        """QUEUED: waits for a row. A stream that yielded is the first of its tenant, and nothing
        refuses it. Raises as Scheduler.acquire.
        """
        loop, record, cost = asyncio.get_running_loop(), self._record, self._cost
        ticket = self._ticket
        if self._must_yield:
            self._must_yield = False
            ticket = replace(ticket, has_begun=True, prompt_tokens=0)
        began = loop.time()
        try:
            with Stage(StageName.QUEUE, record):
                self._permit = await self._means.scheduler.acquire(
                    ticket, moved=self._moved, preempted=self._preempt
                )
        finally:
            has_waited = record.waits.pop(self, None) is not None
        if has_waited:
            self._waited_s += loop.time() - began
            record.queue_s = max(record.queue_s or 0.0, self._waited_s)
        self._has_permit, self._has_row = True, False
        before = cost.tokens
        self._permit.meter(lambda: cost.tokens - before)

    def _moved(self, standing: Standing) -> None:
        waits, now = self._record.waits, asyncio.get_running_loop().time()
        since = waits[self].since if self in waits else now
        waits[self] = Wait(standing, since, now)

    def _preempt(self) -> None:
        self._must_yield = True
        self._interrupt.fire(_preempted())


def _ticket(
    asked: GenerationRequest, request: EngineRequest, *, may_yield: bool, has_begun: bool
) -> Ticket:
    """Callers without a key are identified by the tenant that they name, or by their address."""
    who, card = current_caller.get(), request.model
    text, ids = request.text or "", request.token_ids or ()
    size = len(text) if text.isascii() else len(text.encode())
    return Ticket(
        queue=f"{card.pool}/{card.triton_model}",
        tenant=(asked.tenant or asked.caller) if who.is_shared else who.tenant,
        weight=who.weight,
        priority=asked.priority or 0,
        prompt_tokens=-(-size // CHARACTERS_A_TOKEN) + len(ids),
        prompt_bytes=getsizeof(text) + ID_BYTES * len(ids) + sum(map(_size, request.images)),
        patience_s=asked.queue_patience_s,
        has_begun=has_begun,
        may_yield=may_yield,
        engine_takes_priority="priority" in card.capabilities,
    )


def _size(image: Image) -> int:
    return len(image.base64)


async def _next(source: Deltas, watch: TimeWatch) -> TokenDelta:
    watch.wait()
    try:
        delta = await anext(source)
    except asyncio.CancelledError:
        watch.raise_if_over()
        raise
    watch.is_waiting = False
    return delta


async def _nothing() -> Deltas:
    return
    yield  # a generator


def _urgent(part: EngineRequest) -> int | None:
    """An engine that takes priorities runs it before all others of its class."""
    if "priority" not in part.model.capabilities:
        return part.priority
    return min((part.priority or 0) + 1, HIGHEST_PRIORITY)


def cause_of(error: Loss) -> Cause:
    match error:
        case Preempted():
            return Cause.PREEMPTED
        case EndpointDrains():
            return Cause.DRAINED
        case EngineStalled():
            return Cause.STALLED
    return Cause.LOST


def _preempted() -> Preempted:
    return Preempted("Another request needed this one's place. Send it again.")


def _refused(lost: Loss, why: str) -> ModelUnavailable:
    error = ModelUnavailable(
        f"The model server was lost in the middle of this answer{why}. Send the request again.",
        detail=lost.detail,
    )
    error.__cause__ = lost
    return error
