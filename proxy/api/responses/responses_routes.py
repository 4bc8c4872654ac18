"""POST /v1/responses, and the routes of responses that are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, aclosing
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import Field, StringConstraints
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from proxy.access.concurrency import SharedConcurrency
from proxy.api import errors
from proxy.api.http.answer import Answers
from proxy.api.http.authentication import caller_name
from proxy.api.http.body_reader import BodyReader
from proxy.api.http.client_disconnect import CancelOnDisconnect
from proxy.api.http.own_headers import TAKES_HEADER
from proxy.api.http.stream_format import SSE
from proxy.api.http.typed_route import QueryParameters, typed_router
from proxy.api.openai.field_types import Json, RequestBody
from proxy.api.openapi.responses import (
    BODY,
    EVENTS,
    GENERATION,
    answers,
    named_events,
    requests,
    stream,
)
from proxy.api.responses.answer_bodies import (
    CompactedResponse,
    DeletedResponse,
    InputItemList,
    InputTokens,
    ResponseError,
    ResponseEvent,
    ResponseResource,
)
from proxy.api.responses.background import BackgroundResponses
from proxy.api.responses.input_items import MessageItem, items_of, sealed
from proxy.api.responses.manifest import PATH, RESPONSE_ERRORS
from proxy.api.responses.response_body import Input, ResponseBody, ResponseId
from proxy.api.responses.response_builder import STORE_AWAY, ResponseBuilder, not_found
from proxy.api.responses.response_renderer import ResponseEvents, ResponseRenderer
from proxy.background import end
from proxy.domain.completion import Completion
from proxy.domain.errors import ErrorCode, InvalidRequest, RequestError, StoreUnavailable
from proxy.domain.events import Finished
from proxy.domain.record import running_record
from proxy.state.streams import StreamKey, StreamLost, StreamReader, StreamStore, StreamsUnavailable

READERS = 1024  # of events, at once; a quarter for one tenant
LOOK_S = 0.1  # between two looks at a response that ends
ENDED = ("completed", "incomplete", "failed", "cancelled")


class CompactBody(RequestBody):
    model: str
    input: Input | None = None
    previous_response_id: ResponseId | None = None
    instructions: str | None = None
    prompt_cache_key: Annotated[str, StringConstraints(max_length=512)] | None = None


STREAM = {EVENTS: named_events(ResponseEvent, ResponseError, stream("response"), has_end=True)}
RESPONSE = answers(ResponseResource, *GENERATION, 404, generates=True, content=STREAM)
KEPT = answers(ResponseResource, 400, 404, 410, 429, 503, content=STREAM)
ResponseRequest = Annotated[ResponseBody, Body(openapi_examples=requests("response"))]
CompactRequest = Annotated[CompactBody, Body(openapi_examples=requests("compact"))]
PathId = Annotated[str, Path(min_length=1, max_length=128, description="A response's id.")]
LOST = "The events of this response cannot be read any more. Ask for the response itself."
SUMMARIZE = (
    "Summarize this conversation, so that somebody who has only the summary can continue it: what "
    "the user wants, what was found and decided, what is still to be done, and every name, number, "
    "path and quotation that will be needed."
)


class RetrieveQuery(QueryParameters):
    """starting_after: the sequence number of the last event that the client has. Everything that
    `include` names is always in a response.
    """

    stream: bool = False
    starting_after: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    include_obfuscation: Literal["false"] | None = None
    include: Annotated[str | None, Field(alias="include[]")] = None


class ItemsQuery(QueryParameters):
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    include: Annotated[str | None, Field(alias="include[]")] = None


def routes(
    answerer: Answers,
    builder: ResponseBuilder,
    background: BackgroundResponses,
    *,
    keep_alive_s: float,
    bodies: BodyReader,
) -> APIRouter:
    router = typed_router(bodies, PATH, tag="responses")
    responses = builder.responses
    readers = SharedConcurrency(READERS, what="readers of events of responses")

    @router.post("", name="create", responses=RESPONSE, openapi_extra=TAKES_HEADER)
    async def create_response(http: Request, body: ResponseRequest) -> Response:
        """The model's answer, in one piece, with `stream` as a stream of events, or with
        `background` when it is asked for.
        """
        running_record().is_private = body.store is False
        caller = caller_name(http.scope)
        found = await builder.exchange(body, caller)
        renderer = found.renderer
        if body.background:
            with ExitStack() as reading:  # what is refused is refused now
                if body.stream:
                    reading.enter_context(readers.permits(caller))
                await builder.count(found.exchange)
                response = await background.begin(found, body, caller)
                if not body.stream:
                    return JSONResponse(response)
                events = _events(responses.store, responses.key(response["id"], caller), 0)
                return KeptEvents(events, keep_alive_s, reading.pop_all())

        async def keep(event: Finished) -> None:
            await responses.keep(found, renderer.end(event), caller)

        framing = None
        if body.stream:
            framing = ResponseEvents(renderer=renderer)
        return answerer.answer(found.exchange, framing, keep)

    @router.get("/{response_id}", responses=KEPT)
    async def retrieve_response(
        http: Request, response_id: PathId, query: Annotated[RetrieveQuery, Query()]
    ) -> Response:
        """A kept response, or with `stream` its events: of responses in the background, from any of
        them on.
        """
        caller = caller_name(http.scope)
        kept = await responses.get(response_id, caller)
        if not query.stream:
            if query.starting_after is not None:
                raise InvalidRequest(
                    "'starting_after' is only allowed when 'stream' is true", param="starting_after"
                )
            return Response(kept, media_type="application/json")
        after = 0 if query.starting_after is None else query.starting_after + 1
        events = _events(responses.store, responses.key(response_id, caller), after)
        return KeptEvents(events, keep_alive_s, readers.permits(caller))

    @router.delete("/{response_id}", responses=answers(DeletedResponse, 404, 503))
    async def delete_response(http: Request, response_id: PathId) -> Response:
        """Removes a kept response. One in the background ends."""
        key = responses.key(response_id, caller_name(http.scope))
        await responses.get(response_id, caller_name(http.scope))
        await background.cancel(key.id)
        if not await responses.available(responses.store.delete(key)):
            raise not_found(response_id, None)
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    @router.post("/{response_id}/cancel", responses=answers(ResponseResource, 400, 404, 503))
    async def cancel_response(http: Request, response_id: PathId) -> Response:
        """Ends a response in the background, and returns it."""
        caller = caller_name(http.scope)
        key = responses.key(response_id, caller)
        response = orjson.loads(await responses.get(response_id, caller))
        if not response["background"]:
            raise InvalidRequest(
                "Only responses with 'background' can be cancelled: others end when their "
                "connection does.",
                param=None,
            )
        if response["status"] not in ENDED:
            await responses.available(responses.store.cancel(key))
            await background.cancel(key.id)
            await responses.available(_ended(responses.store, key))
        kept = await responses.get(response_id, caller)
        return Response(kept, media_type="application/json")

    @router.get("/{response_id}/input_items", responses=answers(InputItemList, 400, 404, 503))
    async def list_input_items(
        http: Request, response_id: PathId, query: Annotated[ItemsQuery, Query()]
    ) -> Response:
        """What the model has read, with the conversation before, but without instructions."""
        caller = caller_name(http.scope)
        given = await responses.get(response_id, caller, field="input")
        items = await asyncio.to_thread(_listed, given, response_id)
        if query.order == "desc":
            items.reverse()
        begin = 0
        if query.after is not None:
            places = [at for at, item in enumerate(items) if item["id"] == query.after]
            if not places:
                raise not_found(query.after, "after")
            begin = places[0] + 1
        shown = items[begin : begin + query.limit]
        ids = [item["id"] for item in shown]
        return JSONResponse(
            {
                "object": "list",
                "data": shown,
                "first_id": ids[0] if ids else None,
                "last_id": ids[-1] if ids else None,
                "has_more": begin + query.limit < len(items),
            }
        )

    @router.post("/input_tokens", responses=answers(InputTokens, *BODY, 404, 422))
    async def count_input_tokens(http: Request, body: ResponseRequest) -> Response:
        """The tokens of the prompt, counted by the model's tokenizer; generates nothing."""
        body = body.model_copy(update={"background": None, "store": False})
        found = await builder.exchange(body, caller_name(http.scope))
        count = await builder.count(found.exchange)
        request, record = found.exchange.request, running_record()
        record.id, record.model, record.prompt_tokens = request.id, request.model, count
        return JSONResponse({"object": "response.input_tokens", "input_tokens": count})

    @router.post(
        "/compact",
        responses=answers(CompactedResponse, *GENERATION, 404, generates=True),
    )
    async def compact_response(http: Request, body: CompactRequest) -> Response:
        """A summary of a conversation by the model, as an item that stands for it."""
        running_record().is_private = True
        asked = ResponseBody(
            model=body.model,
            input=[*items_of(body.input), MessageItem(role="user", content=SUMMARIZE)],
            previous_response_id=body.previous_response_id,
            instructions=body.instructions,
            store=False,
        )
        found = await builder.exchange(asked, caller_name(http.scope))
        compacting = Compaction(found.renderer)
        return answerer.answer(replace(found.exchange, renderer=compacting))

    return router


class Compaction:
    """Implements answer.Renderer: the answer is a summary."""

    def __init__(self, renderer: ResponseRenderer) -> None:
        self._renderer = renderer
        self.chunks, self.kept = renderer.chunks, renderer.kept

    def full(self, completion: Completion) -> Json:
        response = self._renderer.full(completion)
        item = {
            "id": f"cmp_{token_hex(16)}",
            "type": "compaction",
            "encrypted_content": sealed(completion.text),
        }
        return {
            "id": response["id"],
            "object": "response.compaction",
            "created_at": response["created_at"],
            "output": [item],
            "usage": response["usage"],
        }


class KeptEvents(Response):
    """The stream of a response that is generated in the background, or was.

    Raises, before the first event:
        RequestError: there are no events, or no permit.
        StoreUnavailable.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        keep_alive_s: float,
        permit: AbstractContextManager[object],
    ) -> None:
        self.background = None
        self._events = events
        self._keep_alive_s = keep_alive_s
        self._permit = permit
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        put = partial(self._put, send)
        with self._permit:
            async with CancelOnDisconnect(receive), aclosing(self._events) as events:
                try:
                    await self._put_all(events, put)
                except (StreamLost, StreamsUnavailable) as error:
                    if not self._has_begun:
                        raise _refusal(error) from error
                    lost = StoreUnavailable(LOST, detail=str(error))
                    await put(RESPONSE_ERRORS.error(errors.body_of(lost)))
        await put(SSE.end, is_last=True)

    async def _put(self, send: Send, part: bytes, *, is_last: bool = False) -> None:
        if not self._has_begun:
            self._has_begun = True
            await send({"type": "http.response.start", "status": 200, "headers": [*SSE.headers]})
        await send({"type": "http.response.body", "body": part, "more_body": not is_last})

    async def _put_all(
        self, events: AsyncGenerator[bytes, None], put: Callable[[bytes], Awaitable[None]]
    ) -> None:
        while True:
            following = asyncio.ensure_future(anext(events, None))
            try:
                while not (await asyncio.wait((following,), timeout=self._keep_alive_s))[0]:
                    await put(SSE.keep_alive)
            except BaseException:
                await end((following,))
                raise
            if (part := following.result()) is None:
                return
            await put(part)


def _refusal(error: Exception) -> RequestError | StoreUnavailable:
    if isinstance(error, StreamsUnavailable):
        return StoreUnavailable(STORE_AWAY, detail=str(error))
    return RequestError(
        "The events of this response are not kept: only those of responses with 'background' are, "
        "as long as there is room.",
        code=ErrorCode.STREAM_NOT_KEPT,
        param="stream",
    )


async def _events(store: StreamStore, key: StreamKey, after: int) -> AsyncGenerator[bytes, None]:
    """What follows the first `after` events. Raises StreamLost, StreamsUnavailable."""
    if (found := await store.find(key)) is None:
        raise StreamLost
    async with aclosing(StreamReader(found, after)) as reader:
        async for events in reader.parts():
            yield b"".join(events)


async def _ended(store: StreamStore, key: StreamKey) -> None:
    """Returns when the response has ended, which whoever generates it does soon, or is deleted."""
    while True:
        found = await store.find(key)
        if found is None or found.has_end:
            return
        await asyncio.sleep(LOOK_S)


def _listed(given: bytes, response_id: str) -> list[Json]:
    """Items as OpenAI lists them: each has an id, and content in parts."""
    prefix = response_id.partition("_")[2]
    found = []
    for at, item in enumerate(orjson.loads(given)):
        if isinstance(item.get("content"), str):
            kind = "output_text" if item["role"] == "assistant" else "input_text"
            item["content"] = [{"type": kind, "text": item["content"]}]
        found.append({"id": f"item_{prefix}{at}", "status": "completed", **item})
    return found
