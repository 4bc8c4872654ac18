"""A request and its answer as attributes of a span: JSON by OpenTelemetry's GenAI schemas. Pure.

gen-ai-input-messages.json and gen-ai-output-messages.json of OpenTelemetry's semantic conventions,
in development. They allow JSON as a string. A long text is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from proxy.domain.events import (
    Finished,
    OutputEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.telemetry.kept_content import HeldBytes, fields_of, may_be_kept, objects_of

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
CONTENT_CUT, CONTENT_LOST = "triton_openai.content_cut", "triton_openai.content_lost"
MOST_CHARACTERS = 50_000  # of one attribute, about
FRAME = 60  # characters of a message, and of a part, besides their values
LONGEST_NAME = 200  # characters of a role, a function, an id
MOST_BYTES, OVERHEAD = 1_000_000, 2_000  # of one request and its answer; beside their own
REASONING = ("reasoning_content", "reasoning")
TEXTS = frozenset({"content", "response", "arguments"})
BLOCKS = ("thinking", "tool_use", "tool_result")

Part = dict[str, Any]


class TracedContent:
    """The body of one request, and the events of its answer. Implements domain.record.Content.

    has_ended: set when nothing more is added. held: bounds the bytes of all requests together.
    """

    def __init__(self, held: HeldBytes) -> None:
        self.has_ended = False
        self._held = held
        self._size = 0
        self._lost: str | None = None
        self._body: list[bytes] = []
        self._choices: dict[int, _Choice] = {}
        self._holds(OVERHEAD)

    def add_body(self, data: bytes) -> None:
        if self._holds(len(data)):
            self._body.append(data)

    def add(self, event: OutputEvent) -> None:
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = _Choice()
        match event:
            case TextDelta() if self._holds(len(event.text)):
                choice.text.append(event.text)
            case ReasoningDelta() if self._holds(len(event.text)):
                choice.thought.append(event.text)
            case ToolCallStarted() if self._holds(len(event.name)):
                choice.calls[event.index] = (event.id, event.name, [])
            case ToolCallArguments() if self._holds(len(event.fragment)):
                choice.calls[event.index][2].append(event.fragment)
            case Finished():
                choice.finish = event.reason.value

    def give_back(self) -> None:
        self._held.give_back(self._size)
        self._size = 0

    def attributes(self, *, is_answered: bool) -> dict[str, Any]:
        """Empty if the request has `store: false`, or is not JSON.

        is_answered: the client got the answer, or the beginning of one.
        """
        if self._lost is not None:
            return {CONTENT_LOST: self._lost}
        fields = fields_of(b"".join(self._body))
        if fields is None or not may_be_kept(fields):
            return {}
        asked, is_asked_cut = _fitting(reversed([*_asked(fields)]))  # the newest are kept
        choices = sorted(self._choices.items()) if is_answered else ()
        said, is_said_cut = _fitting(choice.message for _, choice in choices)
        found: dict[str, Any] = {
            INPUT: orjson.dumps(asked[::-1]).decode(),
            OUTPUT: orjson.dumps(said).decode(),
        }
        if is_asked_cut or is_said_cut:
            found[CONTENT_CUT] = True
        return found

    def _holds(self, size: int) -> bool:
        """Whether so many bytes more may be kept."""
        if self._lost is not None:
            return False
        if self._size + size > MOST_BYTES:
            self._lost = "too_large"
        elif not self._held.hold(size):
            self._lost = "overloaded"
        else:
            self._size += size
        return self._lost is None


class _Choice:
    """calls: by index, id, name, and the fragments of the arguments."""

    def __init__(self) -> None:
        self.finish = ""
        self.text: list[str] = []
        self.thought: list[str] = []
        self.calls: dict[int, tuple[str, str, list[str]]] = {}

    @property
    def message(self) -> Part:
        parts: list[Part] = []
        if thought := "".join(self.thought):
            parts.append({"type": "reasoning", "content": thought})
        if text := "".join(self.text):
            parts.append(_text(text))
        for _, (call_id, name, fragments) in sorted(self.calls.items()):
            parts.append(_call(call_id, {"name": name, "arguments": "".join(fragments)}))
        return {"role": "assistant", "parts": parts, "finish_reason": self.finish}


def _fitting(messages: Iterable[Part]) -> tuple[list[Part], bool]:
    """As many as fit into MOST_CHARACTERS, the last of them cut; and whether anything was."""
    left, is_cut = MOST_CHARACTERS, False
    kept: list[Part] = []
    for message in messages:
        if left <= 0:
            return kept, True
        left -= FRAME
        parts: list[Part] = []
        kept.append({**message, "parts": parts})
        for part in message["parts"]:
            if left <= 0:
                return kept, True
            left -= FRAME
            parts.append(dict(part))
            for name, value in part.items():
                if isinstance(value, str):
                    text = value[: max(left, 0) if name in TEXTS else LONGEST_NAME]
                    parts[-1][name] = text
                    left -= len(text)
                    is_cut |= len(text) < len(value)
    return kept, is_cut


def _asked(fields: Mapping[str, Any]) -> Iterator[Part]:
    prompt = fields.get("prompt")
    for each in prompt if isinstance(prompt, list) else [prompt]:
        if isinstance(each, str):
            yield {"role": "user", "parts": [_text(each)]}
    if (system := fields.get("system")) is not None:
        yield {"role": "system", "parts": [*_parts_of({"content": system}, is_answer=False)]}
    if isinstance(instructions := fields.get("instructions"), str):
        yield {"role": "system", "parts": [_text(instructions)]}
    if isinstance(text := fields.get("input"), str):
        yield {"role": "user", "parts": [_text(text)]}
    for item in objects_of(fields.get("input")):
        yield _item(item)
    for message in objects_of(fields.get("messages")):
        role = str(message.get("role"))[:LONGEST_NAME]
        yield {"role": role, "parts": [*_parts_of(message, is_answer=role == "tool")]}


def _parts_of(message: Mapping[str, Any], *, is_answer: bool) -> Iterator[Part]:
    for name in REASONING:
        if isinstance(thought := message.get(name), str) and thought:
            yield {"type": "reasoning", "content": thought}
            break
    content = message.get("content")
    for each in content if isinstance(content, list) else [content]:
        text = each["text"] if isinstance(each, Mapping) and "text" in each else each
        if is_answer and isinstance(text, str):
            answered = str(message.get("tool_call_id"))
            yield {"type": "tool_call_response", "id": answered, "response": text}
        elif isinstance(text, str):
            yield _text(text)
        elif isinstance(each, Mapping) and each.get("type") in BLOCKS:
            yield _block(each)
        elif isinstance(each, Mapping):  # an image, for example: its kind, not its bytes
            yield {"type": str(each.get("type"))}
    for call in objects_of(message.get("tool_calls")):
        yield _call(call.get("id"), call.get("function") or call.get("custom"))


def _block(block: Mapping[str, Any]) -> Part:
    """A block of Anthropic's API, one of BLOCKS."""
    if block["type"] == "thinking":
        return {"type": "reasoning", "content": str(block.get("thinking"))}
    if block["type"] == "tool_use":
        given = orjson.dumps(block.get("input")).decode()
        return _call(block.get("id"), {"name": block.get("name"), "arguments": given})
    return _answered(block.get("tool_use_id"), block.get("content"))


def _item(item: Mapping[str, Any]) -> Part:
    """An item of the Responses API."""
    kind = str(item.get("type"))
    if kind.endswith("_output"):
        parts = [_answered(item.get("call_id"), item.get("output"))]
        return {"role": "tool", "parts": parts}
    if kind.endswith("_call"):
        written = item.get("arguments") or item.get("input")
        return {
            "role": "assistant",
            "parts": [_call(item.get("call_id"), {**item, "arguments": written})],
        }
    role = str(item.get("role") or "assistant")[:LONGEST_NAME]
    if kind == "reasoning":
        texts = (each.get("text") for each in objects_of(item.get("content")))
        thought = "".join(text for text in texts if isinstance(text, str))
        return {"role": role, "parts": [{"type": "reasoning", "content": thought}]}
    return {"role": role, "parts": [*_parts_of(item, is_answer=False)]}


def _answered(call_id: Any, content: Any) -> Part:
    """The result of a call: a text, or parts. Only the texts among them are shown."""
    texts = (each.get("text") for each in objects_of(content))
    said = "".join(text for text in (content, *texts) if isinstance(text, str))
    return {"type": "tool_call_response", "id": str(call_id), "response": said}


def _text(text: str) -> Part:
    return {"type": "text", "content": text}


def _call(call_id: Any, function: Any) -> Part:
    """Arguments are the text that the model wrote."""
    named = function if isinstance(function, Mapping) else {}
    return {
        "type": "tool_call",
        "id": call_id if isinstance(call_id, str) else None,
        "name": str(named.get("name") or ""),
        "arguments": str(named.get("arguments") or named.get("input") or ""),
    }
