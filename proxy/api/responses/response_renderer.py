"""Output events -> OpenAI's response, or the events of its stream."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from proxy.api.http.stream_format import SSE, NamedEvents, named_event
from proxy.api.openai.field_types import Json
from proxy.api.openai.generation_body import FIELD_NAMES
from proxy.api.openai.log_prob_renderer import ChatLogProbs
from proxy.api.openai.message_bodies import partial_object
from proxy.api.responses.input_items import sealed
from proxy.api.responses.response_body import ENCRYPTED, ResponseBody
from proxy.api.responses.tool_bodies import ClientSearch, Offer, Offered
from proxy.domain.completion import Completion
from proxy.domain.errors import ErrorCode
from proxy.domain.events import (
    Finished,
    LoggedToken,
    OutputEvent,
    ReasoningDelta,
    ServerToolCalled,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason, Usage
from proxy.domain.request import GenerationRequest
from proxy.domain.server_tools import CallStatus

SERVER = "server"  # the label of the server's own tools
NAMES = {
    **FIELD_NAMES,
    "prompt": "input",
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "log_probs": "top_logprobs",
    "return_log_probs": "top_logprobs",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
OF_LIMITS, OF_CALLERS = "rate_limit_exceeded", "invalid_prompt"
SERVER_ERROR = "server_error"
STATUSES = {code.value: code.status for code in ErrorCode}


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of an item, the prefix of its id, how the names of its events begin, the field that
    they add to, and the type of its part of content.
    """

    type: str
    prefix: str
    event: str
    field: str
    part: str | None = None


MESSAGE = Kind("message", "msg", "response.output_text", "text", "output_text")
THOUGHT = Kind("reasoning", "rs", "response.reasoning_text", "text", "reasoning_text")
CALL = Kind("function_call", "fc", "response.function_call_arguments", "arguments")
CUSTOM = Kind("custom_tool_call", "ctc", "response.custom_tool_call_input", "input")
SEARCH_CALL = Kind("tool_search_call", "tsc", "", "arguments")  # has no events of its own
SERVER_CALL = Kind("mcp_call", "mcp", "response.mcp_call_arguments", "arguments")


@dataclass(slots=True)
class Item:
    kind: Kind
    id: str
    index: int
    call_id: str
    name: str = ""
    namespace: str | None = None
    result: ServerToolCalled | None = None
    pieces: list[str] = field(default_factory=list)
    log_probs: list[Any] = field(default_factory=list)
    place: Json = field(init=False)
    delta: Json = field(init=False)  # an event without what differs from one to the next

    def __post_init__(self) -> None:
        part = {} if self.kind.part is None else {"content_index": 0}
        self.place = {"item_id": self.id, "output_index": self.index, **part}
        name = f"{self.kind.event}.delta"
        self.delta = {"type": name, "sequence_number": 0, **self.place, "delta": ""}
        if self.is_message:
            self.delta["logprobs"] = []

    @property
    def part(self) -> Json:
        """Its content, or what there is of it."""
        part = {"type": self.kind.part, "text": "".join(self.pieces)}
        return part | {"annotations": [], "logprobs": self.log_probs} if self.is_message else part

    @property
    def is_message(self) -> bool:
        return self.kind is MESSAGE

    def body(self, status: str, *, is_sealed: bool = False) -> Json:
        text = "".join(self.pieces)
        head = {"id": self.id, "type": self.kind.type, "status": status}
        content = [self.part] if status != "in_progress" else []
        match self.kind.type:
            case "message":
                return {**head, "role": "assistant", "content": content}
            case "reasoning":
                hidden = {"encrypted_content": sealed(text)} if is_sealed else {}
                return {**head, "summary": [], "content": content, **hidden}
            case "mcp_call":
                return {
                    **head,
                    "server_label": SERVER,
                    "name": self.name,
                    "arguments": text,
                    **self._outcome,
                }
            case "tool_search_call":
                search = {"execution": "client", "arguments": partial_object(text)}
                return {**head, "call_id": self.call_id, **search}
        call = {"call_id": self.call_id, "name": self.name, self.kind.field: text}
        return head | call | ({"namespace": self.namespace} if self.namespace else {})

    @property
    def _outcome(self) -> Json:
        if self.result is None:
            return {"output": None, "error": None}
        text, is_good = self.result.result, self.result.status is CallStatus.OK
        return {"output": text if is_good else None, "error": None if is_good else text}


class ResponseRenderer:
    """Implements answer.Renderer. An item is one call, or a run of events of one kind.

    All ids come from the response's, and all numbers from the events alone: the same events give
    the same stream, in whatever process.

    created_at: Unix time in seconds. is_kept: the response can be read later.
    """

    def __init__(
        self,
        body: ResponseBody,
        request: GenerationRequest,
        card: ModelCard,
        offer: Offer,
        *,
        created_at: int | None = None,
    ) -> None:
        self._request = request
        self._offered = offer.tools
        self.created_at = int(time.time()) if created_at is None else created_at
        self.is_kept = True
        self._is_background = bool(body.background)
        self._is_sealed = ENCRYPTED in (body.include or ())
        self._log_probs = ChatLogProbs(by_id=False)
        self._echo = body.echo(card)
        self._hex = request.id.partition("_")[2]
        self._sequence = 0
        self._items: list[Item] = []
        self._begun = 0  # items that the stream has shown
        self.has_begun = False
        self._ended: Json | None = None

    def field_names(self) -> Mapping[str, str]:
        names = dict(NAMES)
        for at, one in enumerate(self._offered.values()):
            own, path = f"tools[{at}]", one.listed.path
            names |= {f"{own}.function": path, f"{own}.custom": path}
            names[f"{own}.custom.format.grammar"] = f"{path}.format"
        return names

    def chunks(self, event: OutputEvent) -> list[Json]:
        chunks = [] if self.has_begun else self.opening()
        if isinstance(event, Finished):
            response = self.end(event)
            if self._begun < len(self._items):  # an answer without a token has an empty message
                chunks += self._beginning(self._items[-1])
            chunks += self._closing(response["output"][-1]["status"])
            chunks.append(self.last(response))
            return chunks
        before = len(self._items)
        if (text := self._take(event)) is None:
            return chunks
        item = self._items[-1]
        if len(self._items) > before:
            chunks += self._closing("completed", before - 1)
            chunks += self._beginning(item)
        if not text:
            return chunks
        if item.kind is SEARCH_CALL:
            item.pieces.append(text)
            return chunks
        delta = item.delta.copy()  # the quickest way: it is made for each token
        delta["sequence_number"], delta["delta"] = self._sequence, text
        self._sequence += 1
        if event.log_probs and item.is_message:
            delta["logprobs"] = self._logged(event.log_probs)
        item.pieces.append(text)
        chunks.append(delta)
        return chunks

    def kept(self, event: OutputEvent) -> OutputEvent:
        """Keeps the order of the items, which a Completion does not have."""
        if isinstance(event, Finished):
            self.end(event)
        elif text := self._take(event):
            self._items[-1].pieces.append(text)
            self._logged(event.log_probs)
        return event

    def full(self, completion: Completion) -> Json:
        assert self._ended is not None  # completions have a Finished
        return self._ended

    def opening(self) -> list[Json]:
        """The first events of the stream, once."""
        if self.has_begun:
            return []
        self.has_begun = True
        statuses = {"created": "in_progress", "in_progress": "in_progress"}
        if self._is_background:
            statuses = {"created": "queued", "queued": "queued", "in_progress": "in_progress"}
        return [
            self._event(f"response.{name}", response=self.snapshot(status))
            for name, status in statuses.items()
        ]

    def end(self, event: Finished) -> Json:
        """The whole response. The event may be rendered after that."""
        if self._ended is not None:
            return self._ended
        if not self._items:
            self._items.append(self._new(MESSAGE))
        is_cut = event.reason is FinishReason.LENGTH
        status = "incomplete" if is_cut else "completed"
        self._ended = self.snapshot(
            status,
            output=self._output(status),
            usage=_usage(event.usage),
            completed_at=None if is_cut else int(time.time()),
            incomplete_details={"reason": "max_output_tokens"} if is_cut else None,
        )
        return self._ended

    def prepared(self) -> Json:
        """The whole response of a request that wants no output."""
        self._ended = self.snapshot(
            "completed", usage=_usage(Usage()), completed_at=int(time.time())
        )
        return self._ended

    def last(self, response: Json) -> Json:
        """The event that ends the stream."""
        return self._event(f"response.{response['status']}", response=response)

    def cancelled(self) -> Json:
        """The whole response, which ends here."""
        return self.snapshot("cancelled", output=self._output("incomplete"))

    def failed(self, body: Json) -> Json:
        """The whole response after an error. body: of the error."""
        error = body["error"]
        of_status = STATUSES.get(error["code"], 500)
        code = SERVER_ERROR if of_status >= 500 else OF_LIMITS if of_status == 429 else OF_CALLERS
        told = {"code": code, "message": error["message"]}
        return self.snapshot("failed", output=self._output("incomplete"), error=told)

    def failure(self, body: Json) -> list[Json]:
        """The events that end a stream with an error."""
        error, opening = body["error"], self.opening()
        told = {name: error[name] for name in ("code", "message", "param")}
        return [
            *opening,
            self._event("error", **told, error=error),
            self._event("response.failed", response=self.failed(body)),
        ]

    def snapshot(self, status: str, **values: Any) -> Json:
        missing = {"completed_at": None, "error": None, "incomplete_details": None, "usage": None}
        return {
            "id": self._request.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "model": self._request.model,
            **missing,
            "output": [],
            "store": self.is_kept,
            **self._echo,
            **values,
        }

    def _output(self, last_status: str) -> list[Json]:
        last = len(self._items) - 1
        return [
            item.body("completed" if at < last else last_status, is_sealed=self._is_sealed)
            for at, item in enumerate(self._items)
        ]

    def _event(self, type: str, **values: Any) -> Json:
        number, self._sequence = self._sequence, self._sequence + 1
        return {"type": type, "sequence_number": number, **values}

    def _take(self, event: OutputEvent) -> str | None:
        """More of the last item, which is a new one if the event begins one. None: no event of an
        item.
        """
        match event:
            case TextDelta():
                return self._more(MESSAGE, event.text)
            case ReasoningDelta():
                return self._more(THOUGHT, event.text)
            case ToolCallArguments():
                return event.fragment
            case ToolCallStarted():
                self._items.append(self._new_call(event, self._offered.get(event.name)))
                return ""
            case ServerToolCalled():
                item = self._new(SERVER_CALL, event.name)
                item.result = event
                self._items.append(item)
                return event.arguments
        return None

    def _more(self, kind: Kind, text: str) -> str | None:
        if not text:
            return None
        if not self._items or self._items[-1].kind is not kind:
            self._items.append(self._new(kind))
        return text

    def _new(self, kind: Kind, name: str = "") -> Item:
        at = len(self._items)
        return Item(kind, f"{kind.prefix}_{self._hex}{at}", at, f"call_{self._hex}{at}", name)

    def _new_call(self, event: ToolCallStarted, offered: Offered | None) -> Item:
        """Under the caller's own names of the tool."""
        kind = CUSTOM if event.is_custom else CALL
        if offered is None:
            return self._new(kind, event.name)
        if isinstance(offered.listed.body, ClientSearch):
            return self._new(SEARCH_CALL)
        item = self._new(kind, offered.listed.body.name)
        item.namespace = offered.listed.namespace
        return item

    def _beginning(self, item: Item) -> list[Json]:
        self._begun += 1
        shown = item.body("in_progress")
        begun = [self._event("response.output_item.added", output_index=item.index, item=shown)]
        if item.kind.part is not None:
            added = {**item.place, "part": item.part}
            begun.append(self._event("response.content_part.added", **added))
        if item.kind is SERVER_CALL:
            at = {"item_id": item.id, "output_index": item.index}
            begun.append(self._event("response.mcp_call.in_progress", **at))
        return begun

    def _closing(self, status: str, index: int | None = None) -> list[Json]:
        """The end of an item; of the last one."""
        index = len(self._items) - 1 if index is None else index
        if index < 0:
            return []
        item = self._items[index]
        done = {**item.place, item.kind.field: "".join(item.pieces)}
        if item.is_message:
            done["logprobs"] = item.log_probs
        if item.kind in (CALL, CUSTOM):
            done["name"] = item.name
        closing = []
        if item.kind is not SEARCH_CALL:
            closing.append(self._event(f"{item.kind.event}.done", **done))
        if item.kind.part is not None:
            whole = {**item.place, "part": item.part}
            closing.append(self._event("response.content_part.done", **whole))
        if item.result is not None:
            is_good = item.result.status is CallStatus.OK
            name = "completed" if is_good else "failed"
            at = {"item_id": item.id, "output_index": item.index}
            closing.append(self._event(f"response.mcp_call.{name}", **at))
        body = item.body(status, is_sealed=self._is_sealed)
        closing.append(self._event("response.output_item.done", output_index=index, item=body))
        return closing

    def _logged(self, tokens: tuple[LoggedToken, ...]) -> list[Any]:
        """The log-probabilities of a text, which its item keeps as JSON text."""
        if not tokens or not self._items[-1].is_message:
            return []
        found = [
            orjson.Fragment(orjson.dumps(one))
            for one in self._log_probs.rendered(tokens)["content"]
        ]
        self._items[-1].log_probs += found
        return found


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEvents(NamedEvents):
    """The format of one response's stream, whose error is an event of the response too."""

    end: bytes = SSE.end
    renderer: ResponseRenderer

    def error(self, body: Json) -> bytes:
        return b"".join(map(named_event, self.renderer.failure(body)))
