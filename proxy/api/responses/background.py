"""Responses that are generated whether or not anybody listens.

One whose process ends is continued by another that shares the store, from the engine's deltas.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import orjson
import structlog
from pydantic import TypeAdapter
from typing_extensions import Self

from proxy import background
from proxy.api import errors
from proxy.api.http.application import new_request_id
from proxy.api.http.stream_format import named_event
from proxy.api.openai.field_types import Json
from proxy.api.responses.response_body import ResponseBody
from proxy.api.responses.response_builder import (
    Continued,
    ResponseBuilder,
    ResponseExchange,
)
from proxy.api.responses.response_renderer import SERVER_ERROR
from proxy.domain.delta_log import DeltaLog
from proxy.domain.errors import EngineFailed, ModelUnavailable, RateLimited
from proxy.domain.identity import Caller, current_caller
from proxy.domain.request import Delivery
from proxy.generation.service import Service
from proxy.state.streams import Claim, Kind, LostStream, StreamsUnavailable
from proxy.telemetry.request_log import RequestLog

logger = structlog.get_logger(__name__)

PATH = "/v1/responses"
BEAT_S = 2.5
ENDS_WITHIN_S = 5.0  # a cancelled generation, with what is written of it
MOST_TAKES = 3  # processes that may be lost with one response


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a process needs in order to continue a response. body: JSON, as the caller sent it."""

    id: str
    created_at: int
    body: str
    caller: Caller
    caller_name: str

    def as_json(self) -> bytes:
        return _JOB.dump_json(self)


_JOB: TypeAdapter[Job] = TypeAdapter(Job)
Begin = Callable[[], Awaitable[None]] | None


class _Cancelled(Exception):
    """The response was cancelled or deleted, or another process has it."""


class BackgroundResponses:
    """`async with` renews the claims of this process, and continues what others have lost."""

    def __init__(
        self,
        builder: ResponseBuilder,
        service: Service,
        log: RequestLog,
    ) -> None:
        self._store = builder.responses.store
        self._builder = builder
        self._service = service
        self._log = log
        self._running: dict[bytes, tuple[Claim, asyncio.Task[None]]] = {}

    async def __aenter__(self) -> Self:
        self._beats = background.Periodic(self._beat, BEAT_S)
        self._beats.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._beats.stop()
        running, self._running = self._running, {}
        await background.end([task for _, task in running.values()])
        await self._release([claim for claim, _ in running.values()])

    async def begin(self, found: ResponseExchange, body: ResponseBody, caller: str) -> Json:
        """Begins to generate a response, and returns it as it is now.

        Raises:
            StoreUnavailable, and as Service.generate where a limit is reached.
        """
        renderer, request = found.renderer, found.exchange.request
        unread = body.model_copy(update={"input": ""})  # the items are in found.input
        job = Job(
            id=request.id,
            created_at=renderer.created_at,
            body=unread.model_dump_json(exclude_none=True, by_alias=True),
            caller=current_caller.get(),
            caller_name=caller,
        )
        response = renderer.snapshot("queued")
        fields = {"head": orjson.dumps(response), "input": found.input, "job": job.as_json()}
        claim = Claim(self._builder.responses.key(request.id, caller), patience_s=math.inf)
        begun = asyncio.get_running_loop().create_future()

        async def admitted() -> None:
            await self._builder.responses.available(self._store.claim(claim, fields))
            self._running[claim.key.id] = claim, task
            begun.set_result(None)

        task = self._start(claim, found, admitted, 0)
        await asyncio.wait((begun, task), return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            await task  # raises why it was refused
        return response

    async def cancel(self, key_id: bytes) -> None:
        """Ends a generation of this process, if it is one; returns when it has ended."""
        if (found := self._running.get(key_id)) is None:
            return
        task = found[1]
        while not task.done():  # a cancellation may be lost: see proxy.background
            task.cancel()
            await asyncio.wait((task,), timeout=ENDS_WITHIN_S)

    def _start(
        self, claim: Claim, found: ResponseExchange, begin: Begin, skips: int
    ) -> asyncio.Task[None]:
        """begin: claims a new response, once it is within all limits; what is raised before is
        raised by the task. skips: events that another process has written already.
        """
        task = asyncio.create_task(self._run(claim, found, begin, skips))
        task.add_done_callback(lambda _: self._running.pop(claim.key.id, None))
        return task

    async def _run(self, claim: Claim, found: ResponseExchange, begin: Begin, skips: int) -> None:
        request_id = new_request_id()
        with self._log.recorded("POST", PATH, request_id=request_id) as record:
            record.field_names = found.renderer.field_names
            try:
                await self._generate(claim, found, begin, skips)
                record.status = 200
            except StreamsUnavailable as error:
                logger.error(
                    "a response in the background is lost",
                    id=found.exchange.request.id,
                    error=str(error),
                    advice="look at the server that LEDGER_URL names; another proxy continues it",
                )

    async def _generate(
        self, claim: Claim, found: ResponseExchange, begin: Begin, skips: int
    ) -> None:
        renderer, log = found.renderer, found.exchange.request.delta_log
        is_admitted = False
        assert log is not None

        async def admitted() -> None:
            nonlocal is_admitted
            if begin is not None:
                await begin()
            is_admitted = True
            with contextlib.suppress(_Cancelled):  # the next event notices it, too
                await write(renderer.opening())

        async def write(events: Sequence[Json]) -> None:
            nonlocal skips
            new = [named_event(event) for event in events[skips:]]
            skips = max(skips - len(events), 0)
            deltas = log.take()
            if (new or deltas) and not await self._store.append(claim, Kind.PARTS, new, deltas):
                raise _Cancelled

        try:
            response = await self._written(found, admitted, write)
        except _Cancelled:
            response = renderer.cancelled()
        except asyncio.CancelledError:
            if claim.key.id not in self._running:  # this process stops
                raise
            response = renderer.cancelled()
        except StreamsUnavailable:
            raise
        except Exception as error:
            if claim.key.id not in self._running:
                raise
            if not is_admitted and isinstance(error, RateLimited | ModelUnavailable):
                return  # when its lease ends, this proxy or another one tries again
            failure = renderer.failure(errors.body_of(error))
            response = failure[-1]["response"]
            with contextlib.suppress(_Cancelled):
                await write(failure)
        await self._store.keep(claim, {"head": orjson.dumps(response)})

    async def _written(
        self,
        found: ResponseExchange,
        admitted: Callable[[], Awaitable[None]],
        write: Callable[[Sequence[Json]], Awaitable[None]],
    ) -> Json:
        """Writes all events; returns the whole response."""
        exchange, renderer = found.exchange, found.renderer
        chunks: Sequence[Json] = ()
        generation = self._service.generate(
            exchange.request, exchange.card, Delivery.LIVE, admitted
        )
        async with aclosing(generation.events) as events:
            async for event in events:
                chunks = renderer.chunks(event)
                await write(chunks)
        response: Json = chunks[-1]["response"]
        return response

    async def _beat(self) -> None:
        try:
            claims = [claim for claim, _ in self._running.values()]
            stand = await asyncio.gather(*map(self._stands, claims))
            for claim, stands in zip(claims, stand, strict=True):
                if not stands:
                    await self.cancel(claim.key.id)
            refused = []
            while (lost := await self._store.take()) is not None:
                refused += [] if await self._continue(lost) else [lost.claim]
            await self._release(refused)
            await self._store.stored_bytes()  # removes what has expired
        except StreamsUnavailable as error:
            logger.warning(
                "responses cannot be kept at present",
                error=str(error),
                advice="look at the server that LEDGER_URL names",
            )

    async def _stands(self, claim: Claim) -> bool:
        """A claim that cannot be renewed stands until Redis says something else."""
        try:
            return (await self._store.renew(claim))[0]
        except StreamsUnavailable:
            return True

    async def _release(self, claims: Sequence[Claim]) -> None:
        """A lease that cannot be ended ends by itself."""
        releases = map(self._store.release, claims)
        with contextlib.suppress(StreamsUnavailable):
            await asyncio.gather(*releases)

    async def _continue(self, lost: LostStream) -> bool:
        """What cannot be continued ends as failed. False: this proxy does not have the model now,
        but another one may have it.
        """
        await self.cancel(lost.claim.key.id)  # where this process itself had lost it
        try:
            if lost.takes > MOST_TAKES:
                raise EngineFailed(f"This response was lost with {lost.takes} proxies.")
            await self._take_over(lost, _JOB.validate_json(lost.job))
        except ModelUnavailable:
            return False
        except Exception as error:
            await self._fail(lost, errors.body_of(error)["error"]["message"])
        return True

    async def _take_over(self, lost: LostStream, job: Job) -> None:
        token = current_caller.set(job.caller)
        try:
            body = ResponseBody.model_validate_json(job.body)
            continued = Continued(
                id=job.id,
                created_at=job.created_at,
                input=lost.input,
                log=DeltaLog(logged=lost.deltas),
            )
            found = await self._builder.exchange(body, job.caller_name, continued=continued)
            events = lost.claim.parts
            logger.info("a response in the background continues", id=job.id, events=events)
            task = self._start(lost.claim, found, None, events)
            self._running[lost.claim.key.id] = lost.claim, task
        finally:
            current_caller.reset(token)

    async def _fail(self, lost: LostStream, message: str) -> None:
        if (kept := await self._store.field(lost.claim.key, "head")) is None:
            return
        response = {
            **orjson.loads(kept),
            "status": "failed",
            "error": {"code": SERVER_ERROR, "message": message},
        }
        number = lost.claim.parts
        event = {"type": "response.failed", "sequence_number": number, "response": response}
        await self._store.append(lost.claim, Kind.PARTS, [named_event(event)])
        await self._store.keep(lost.claim, {"head": orjson.dumps(response)})
