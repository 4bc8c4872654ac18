"""A checked body -> the exchange that it asks for, with the items of the responses before it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, cast

import orjson
import structlog
from pydantic import RootModel

from proxy.api.http.answer import Exchange
from proxy.api.http.body_reader import BodyReader, converted
from proxy.api.openai.field_types import Json
from proxy.api.openai.request_builder import FieldLimits, RequestBuilder
from proxy.api.responses.conversation import conversation, turns
from proxy.api.responses.input_items import (
    AdditionalToolsItem,
    AnyItem,
    Items,
    MessageItem,
    ReferenceItem,
    SearchOutputItem,
    items_of,
)
from proxy.api.responses.response_body import ResponseBody
from proxy.api.responses.response_renderer import NAMES, ResponseRenderer
from proxy.api.responses.tool_bodies import Offer
from proxy.domain.delta_log import DeltaLog
from proxy.domain.errors import (
    ErrorCode,
    InvalidRequest,
    RequestError,
    StoreUnavailable,
    echoed,
    unsupported,
)
from proxy.domain.identity import current_caller
from proxy.domain.record import running_record
from proxy.domain.tokenizer import Tokenizer
from proxy.generation.service import Service
from proxy.models.registry import ServedModel
from proxy.state.answer import digest
from proxy.state.streams import Claim, StreamKey, StreamStore, StreamsUnavailable

logger = structlog.get_logger(__name__)

T = TypeVar("T")
MOST_TRIALS = 4  # of a shorter conversation, once one fits
MOST_REFERENCED = 64  # responses whose items one input names
STORE_AWAY = "Kept responses cannot be read or written at present. Try again later."


class ItemList(RootModel[Items]):
    """Kept items, parsed as a body is."""


@dataclass(frozen=True, slots=True)
class ResponseExchange:
    """input: JSON of all items that the model reads."""

    exchange: Exchange
    renderer: ResponseRenderer
    input: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """What a process that continues a response knows of it."""

    id: str
    created_at: int
    input: bytes
    log: DeltaLog


class KeptResponses:
    """The responses of the running request's caller. Callers see those of their own tenant, whose
    keys allow the same models; without keys, everybody who knows an id.
    """

    def __init__(self, store: StreamStore, bodies: BodyReader) -> None:
        self.store = store
        self._bodies = bodies

    def key(self, response_id: str, caller: str) -> StreamKey:
        """caller: the name of the caller, for bounds where there are no keys."""
        who = current_caller.get()
        owner = () if who.is_shared else (who.tenant, *sorted(who.models.patterns))
        tenant = caller if who.is_shared else who.tenant
        return StreamKey(id=digest((response_id, *owner)), tenant=digest((tenant,)))

    async def get(
        self,
        response_id: str,
        caller: str,
        param: str | None = None,
        field: Literal["head", "input"] = "head",
    ) -> bytes:
        """JSON of the response, or of the items that the model has read.

        Raises:
            RequestError: there is none with this id, or it is another's.
            StoreUnavailable.
        """
        found = await self.available(self.store.field(self.key(response_id, caller), field))
        if found is None:
            raise not_found(response_id, param)
        return found

    async def available(self, asked: Awaitable[T]) -> T:
        """What the store answers. Raises StoreUnavailable."""
        try:
            return await asked
        except StreamsUnavailable as error:
            raise StoreUnavailable(STORE_AWAY, detail=str(error)) from error

    async def context(self, response_id: str, caller: str) -> list[AnyItem]:
        """All items of a conversation up to the end of this response."""
        response = orjson.loads(await self.get(response_id, caller, "previous_response_id"))
        if response["status"] in ("queued", "in_progress"):
            raise InvalidRequest(
                f"'previous_response_id' is {echoed(response_id)}, which is still generated: wait "
                "for its end.",
                param="previous_response_id",
            )
        given = await self.get(response_id, caller, "previous_response_id", "input")
        output = orjson.dumps(whole_items(response))
        most = self._bodies.limits.bytes
        if len(given) + len(output) > most:
            raise InvalidRequest(
                f"The conversation up to {echoed(response_id)} has "
                f"{len(given) + len(output)} bytes, at most {most} are allowed: shorten it, "
                "and send it as 'input'.",
                code=ErrorCode.CONTEXT_LENGTH_EXCEEDED,
                param="previous_response_id",
            )
        return [*await self.items(given, caller), *await self.items(output, caller)]

    async def resolved(
        self, items: Sequence[AnyItem | ReferenceItem], caller: str
    ) -> list[AnyItem]:
        """Items in the place of references to them. Raises RequestError."""
        known: dict[str, dict[str, tuple[AnyItem, int]]] = {}
        found: list[AnyItem] = []
        left_bytes = self._bodies.limits.bytes
        for item in items:
            if not isinstance(item, ReferenceItem):
                found.append(item)
                continue
            response_id = response_of(item.id)
            if response_id not in known:
                if len(known) == MOST_REFERENCED:
                    raise _too_much(f"items of more than {MOST_REFERENCED} responses")
                known[response_id] = await self._output(response_id, caller)
            if item.id not in known[response_id]:
                raise not_found(item.id, "input")
            named, size_bytes = known[response_id][item.id]
            left_bytes -= size_bytes
            if left_bytes < 0:
                raise _too_much(f"items of more than {self._bodies.limits.bytes} bytes")
            found.append(named)
        return found

    async def _output(self, response_id: str, caller: str) -> dict[str, tuple[AnyItem, int]]:
        """Items of a kept response by their ids, and their sizes; none of one that is not kept."""
        kept = await self.available(self.store.field(self.key(response_id, caller), "head"))
        if kept is None:
            return {}
        output = orjson.loads(kept)["output"]
        items = await self.items(orjson.dumps(output), caller)
        return {
            given["id"]: (item, len(orjson.dumps(given)))
            for given, item in zip(output, items, strict=True)
        }

    async def keep(self, found: ResponseExchange, response: Json, caller: str) -> None:
        """Keeps a response that has ended. Where it cannot be kept, its `store` says so."""
        if not response["store"]:
            return
        claim = Claim(self.key(response["id"], caller), patience_s=0)
        try:
            await self.store.claim(claim, {"head": orjson.dumps(response), "input": found.input})
            await self.store.keep(claim, {})
        except StreamsUnavailable as error:
            response["store"] = False
            logger.warning(
                "a response is not kept",
                id=response["id"],
                error=str(error),
                advice="look at the server that LEDGER_URL names",
            )

    async def items(self, data: bytes, caller: str) -> list[AnyItem]:
        """Items that were kept, as JSON. None is a reference: see `resolved`."""
        if data == b"[]":
            return []
        found = await self._bodies.parse(data, ItemList, caller)
        return cast("list[AnyItem]", found.root)


def not_found(id: str, param: str | None) -> RequestError:
    what = "Item" if param == "input" else "Response"
    return RequestError(
        f"{what} with id {echoed(id)} not found: it was never kept, or is not kept any more.",
        code=ErrorCode.RESPONSE_NOT_FOUND,
        param=param,
    )


def _too_much(named: str) -> InvalidRequest:
    return InvalidRequest(
        f"'input' names {named}: send the items themselves, or 'previous_response_id'.",
        param="input",
    )


def response_of(item_id: str) -> str:
    """The id of the response that an item is from, by the item's own: see ResponseRenderer."""
    return f"resp_{item_id.partition('_')[2][:32]}"


def whole_items(response: Json) -> list[Json]:
    """The output. A call that was cut off gets no output, and cannot stand in the next prompt."""
    return [
        item
        for item in response["output"]
        if item["type"] == "message" or item["status"] == "completed"
    ]


class ResponseBuilder:
    """Raises what RequestBuilder, KeptResponses and Conversation raise."""

    def __init__(
        self,
        builder: RequestBuilder,
        limits: FieldLimits,
        responses: KeptResponses,
        service: Service,
        tokenizer: Tokenizer,
    ) -> None:
        self._builder = builder
        self._limits = limits
        self.responses = responses
        self._service = service
        self._tokenizer = tokenizer

    async def exchange(
        self,
        body: ResponseBody,
        caller: str,
        *,
        continued: Continued | None = None,
        before: Sequence[AnyItem] | None = None,
        keeps_input: bool = False,
    ) -> ResponseExchange:
        """before: the items of `previous_response_id`, where the caller has them. keeps_input: also
        where the response is not kept.
        """
        may_keep = bool(self.responses.store.limits.keep_s)
        if not may_keep and (body.store or body.background):
            name = "background" if body.background else "store"
            raise unsupported(
                f"'{name}' is not supported: this server keeps no responses (RESPONSES_KEEP_S=0).",
                param=name,
            )
        keeps = may_keep and body.store is not False
        body, served = self._builder.resolved(body, "input")
        body.check_max_calls(served.card.server_tools.tools)
        if continued is None:
            items = await self._input(body, caller, before)
            running_record().field_names = lambda: NAMES
            offer = await converted(self._checked_offer, body, items)
            kept = ItemList.model_construct([*items] if keeps or keeps_input else [])
            given = (await converted(kept.model_dump_json, exclude_none=True)).encode()
        else:
            given = continued.input
            items = await self.responses.items(given, caller)
            offer = await converted(self._offer, body, items)
        exchange = await self._exchange(body, served, items, caller, offer, continued)
        if body.truncation == "auto" and continued is None:
            exchange = await self._fitting(exchange, body, served, items, caller)
        renderer = exchange.renderer
        assert isinstance(renderer, ResponseRenderer)
        renderer.is_kept = keeps
        running_record().field_names = renderer.field_names
        return ResponseExchange(exchange, renderer, given)

    async def count(self, exchange: Exchange) -> int:
        """The prompt's tokens."""
        request, *_ = await self._service.engine_requests(exchange.request, exchange.card)
        return len((await self._tokenizer.admit(request)).ids)

    async def _input(
        self, body: ResponseBody, caller: str, before: Sequence[AnyItem] | None
    ) -> list[AnyItem]:
        items = await self.responses.resolved(items_of(body.input), caller)
        if body.previous_response_id is None:
            return items
        if before is None:
            before = await self.responses.context(body.previous_response_id, caller)
        return [*before, *items]

    async def _exchange(
        self,
        body: ResponseBody,
        served: ServedModel,
        items: Sequence[AnyItem],
        caller: str,
        offer: Offer,
        continued: Continued | None = None,
    ) -> Exchange:
        servers = () if body.server_tools is False else served.card.server_tools.tools
        offer.check(body.tool_choice, servers)
        before = len(items) - len(items_of(body.input))
        messages, images = await converted(conversation, body.instructions, items, offer, before)
        request = body.to_domain(caller, offer, messages, images)
        if served.card.server_tools.tools and body.server_tools is not False:
            request = replace(request, reports_server_calls=True)
        created_at = None
        if continued is not None:
            request = replace(request, id=continued.id, delta_log=continued.log)
            created_at = continued.created_at
        elif body.background:
            request = replace(request, delta_log=DeltaLog())
        renderer = ResponseRenderer(body, request, served.card, offer, created_at=created_at)
        running_record().field_names = renderer.field_names
        return await self._builder.exchange(body, request, served, renderer)

    async def _fitting(
        self,
        exchange: Exchange,
        body: ResponseBody,
        served: ServedModel,
        items: Sequence[AnyItem],
        caller: str,
    ) -> Exchange:
        """Without the oldest turns, about as few as it takes for the prompt to fit: each trial, by
        halves, costs as much as counting the prompt. Where even the last turn is too long, all of
        it, which is refused.
        """
        cuts = turns(items)
        if not cuts or await self._fits(exchange):
            return exchange
        found, low, high, trials = exchange, 0, len(cuts) - 1, 0
        while low <= high and (trials < MOST_TRIALS or found is exchange):
            trials += 1
            middle = (low + high) // 2
            cut = cuts[middle]
            kept = [*filter(_is_instruction, items[:cut]), *items[cut:]]
            offer = await converted(self._offer, body, kept)
            trial = await self._exchange(body, served, kept, caller, offer)
            if await self._fits(trial):
                found, high = trial, middle - 1
            else:
                low = middle + 1
        return found

    def _offer(self, body: ResponseBody, items: Sequence[AnyItem]) -> Offer:
        kinds = (AdditionalToolsItem, SearchOutputItem)
        added = [one.tools for one in items if isinstance(one, kinds)]
        return Offer.of(body.tools or (), added, self._limits.tools)

    def _checked_offer(self, body: ResponseBody, items: Sequence[AnyItem]) -> Offer:
        """Raises InvalidRequest: there are too many items or tools."""
        offer = self._offer(body, items)
        self._limits.check_chat(items, [one.listed.body for one in offer.tools.values()])
        return offer

    async def _fits(self, exchange: Exchange) -> bool:
        try:
            await self.count(exchange)
        except InvalidRequest as error:
            if error.code is not ErrorCode.CONTEXT_LENGTH_EXCEEDED:
                raise
            return False
        return True


def _is_instruction(item: AnyItem) -> bool:
    if isinstance(item, AdditionalToolsItem):
        return True
    return isinstance(item, MessageItem) and item.role in ("system", "developer")
