"""Output events -> Anthropic's message, or the events of its stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.api.openai.field_types import Json
from proxy.api.openai.message_bodies import partial_object
from proxy.domain.completion import Completion
from proxy.domain.events import (
    Finished,
    OutputEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.domain.output import FinishReason, Usage
from proxy.domain.record import running_record
from proxy.domain.request import GenerationRequest

SIGNATURE = "unsigned"  # clients drop reasoning whose signature is empty
NAMES = {
    "prompt": "messages",
    "thinking_token_budget": "thinking.budget_tokens",
    "reasoning_effort": "thinking",
    "continue_final_message": "messages",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a block, that of its deltas, and the field that they add to."""

    type: str
    delta: str
    field: str


TEXT = Kind("text", "text_delta", "text")
THOUGHT = Kind("thinking", "thinking_delta", "thinking")
CALL = Kind("tool_use", "input_json_delta", "partial_json")
KINDS: Mapping[type, Kind] = {
    TextDelta: TEXT,
    ReasoningDelta: THOUGHT,
    ToolCallStarted: CALL,
    ToolCallArguments: CALL,
}


@dataclass(slots=True)
class Block:
    """pieces: of a whole answer, its text, or the JSON of its input."""

    kind: Kind
    call: ToolCallStarted | None
    pieces: list[str] = field(default_factory=list)

    def body(self, signature: str = "") -> Json:
        text = "".join(self.pieces)
        if self.call is not None:
            return {
                "type": "tool_use",
                "id": self.call.id,
                "name": self.call.name,
                "input": partial_object(text),
            }
        signed = {"signature": signature} if self.kind is THOUGHT else {}
        return {"type": self.kind.type, self.kind.field: text, **signed}


class MessageRenderer:
    """Implements answer.Renderer. A block is one call, or a run of events of one kind.

    tool_paths: of the request's tools, in the body. hides_thoughts: blocks of reasoning are empty.
    """

    def __init__(
        self, request: GenerationRequest, tool_paths: Sequence[str], *, hides_thoughts: bool
    ) -> None:
        self._request = request
        self._tool_paths = tool_paths
        self._hides_thoughts = hides_thoughts
        self._has_begun = False
        self._blocks: list[Block] = []
        self._finished: Finished | None = None

    def field_names(self) -> Mapping[str, str]:
        names = dict(NAMES)
        for at, path in enumerate(self._tool_paths):
            names[f"tools[{at}].function"] = path
            names[f"tools[{at}].function.parameters"] = f"{path}.input_schema"
        return names

    def chunks(self, event: OutputEvent) -> list[Json]:
        chunks = [] if self._has_begun else [self._opening()]
        if isinstance(event, Finished):
            self._finished = event
            last = {"type": "message_delta", "delta": self._end(), "usage": _usage(event.usage)}
            return [*chunks, *self._closing(), last, {"type": "message_stop"}]
        before = len(self._blocks)
        if (text := self._take(event)) is None:
            return chunks
        block, index = self._blocks[-1], len(self._blocks) - 1
        if index >= before:
            chunks += self._closing(before - 1)
            start = {"type": "content_block_start", "index": index, "content_block": block.body()}
            chunks.append(start)
        if text:
            delta = {"type": block.kind.delta, block.kind.field: text}
            chunks.append({"type": "content_block_delta", "index": index, "delta": delta})
        return chunks

    def kept(self, event: OutputEvent) -> OutputEvent:
        """Keeps the order of the blocks, which a Completion does not have."""
        if isinstance(event, Finished):
            self._finished = event
        elif text := self._take(event):
            self._blocks[-1].pieces.append(text)
        return event

    def full(self, completion: Completion) -> Json:
        content = [block.body(SIGNATURE) for block in self._blocks]
        return {**self._message(completion.usage), "content": content, **self._end()}

    def _take(self, event: OutputEvent) -> str | None:
        """More of the last block, which is a new one if the event begins one. None: no event of a
        block.
        """
        if (kind := KINDS.get(type(event))) is None:
            return None
        call = event if isinstance(event, ToolCallStarted) else None
        text = getattr(event, "fragment" if kind is CALL else "text", "")
        if call is None and not text:
            return None
        if call is not None or not self._blocks or self._blocks[-1].kind is not kind:
            self._blocks.append(Block(kind, call))
        return "" if kind is THOUGHT and self._hides_thoughts else text

    def _opening(self) -> Json:
        """With the prompt's tokens, which the engine reports with its first one."""
        self._has_begun = True
        usage = running_record().usage or Usage()
        message = {
            **self._message(replace(usage, completion_tokens=0, reasoning_tokens=0)),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        return {"type": "message_start", "message": message}

    def _closing(self, index: int | None = None) -> list[Json]:
        """The end of a block; of the last one."""
        index = len(self._blocks) - 1 if index is None else index
        if index < 0:
            return []
        stop: Json = {"type": "content_block_stop", "index": index}
        if self._blocks[index].kind is not THOUGHT:
            return [stop]
        delta = {"type": "signature_delta", "signature": SIGNATURE}
        return [{"type": "content_block_delta", "index": index, "delta": delta}, stop]

    def _message(self, usage: Usage) -> Json:
        return {
            "id": self._request.id,
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
            "usage": {**_usage(usage), "service_tier": "standard"},
        }

    def _end(self) -> Json:
        assert self._finished is not None
        stop, reason = None, "end_turn"
        if self._finished.reason is FinishReason.LENGTH:
            reason = "max_tokens"
        elif any(block.call is not None for block in self._blocks):
            reason = "tool_use"  # also of a named tool, whose answer ends with STOP
        elif self._finished.stop is not None:
            stop, reason = self._finished.stop, "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": stop}


def _usage(usage: Usage) -> Json:
    """Engines cache every prompt by themselves, which nobody counts as a creation."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }
