"""A request and its answer as attributes of a span: JSON by OpenTelemetry's GenAI schemas. Pure.

gen-ai-input-messages.json and gen-ai-output-messages.json of OpenTelemetry's semantic conventions,
in development. They allow JSON as a string. A long text is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from proxy.domain.request import ChatPrompt, GenerationRequest, Message, TextPrompt
from proxy.domain.tools import ToolCall
from proxy.telemetry.kept_content import HeldBytes

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
CONTENT_CUT, CONTENT_LOST = "triton_openai.content_cut", "triton_openai.content_lost"
MOST_CHARACTERS = 50_000  # of one attribute, about
FRAME = 60  # characters of a message, and of a part, besides their values
LONGEST_NAME = 200  # characters of a role, a function, an id
MOST_BYTES, OVERHEAD = 1_000_000, 2_000  # of one request and its answer; beside their own
TEXTS = frozenset({"content", "response", "arguments"})

Part = dict[str, Any]


class TracedContent:
    """The prompts of one request, and the events of its answer. Implements domain.record.Content.

    has_ended: set when nothing more is added. held: bounds the bytes of all requests together.
    """

    def __init__(self, held: HeldBytes) -> None:
        self.has_ended = False
        self._held = held
        self._size = 0
        self._lost: str | None = None
        self._asked: list[Message] | None = None
        self._choices: dict[int, _Choice] = {}
        self._holds(OVERHEAD)

    def ask(self, request: GenerationRequest) -> None:
        messages = [*_messages(request)]
        if self._holds(sum(map(_size, messages))):
            self._asked = messages

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
        """Empty if the request was refused before it was one of a model.

        is_answered: the client got the answer, or the beginning of one.
        """
        if self._lost is not None:
            return {CONTENT_LOST: self._lost}
        if self._asked is None:
            return {}
        asked, is_asked_cut = _fitting(map(_shown, reversed(self._asked)))  # the newest are kept
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
        calls = (
            ToolCall(id=call_id, name=name, arguments="".join(fragments))
            for _, (call_id, name, fragments) in sorted(self.calls.items())
        )
        said = Message(
            role="assistant",
            content="".join(self.text) or None,
            reasoning="".join(self.thought),
            tool_calls=tuple(calls),
        )
        return {**_shown(said), "finish_reason": self.finish}


def _messages(request: GenerationRequest) -> Iterator[Message]:
    """Without images, which are large, and without token ids."""
    for prompt in request.prompts:
        match prompt:
            case ChatPrompt():
                yield from prompt.messages
            case TextPrompt():
                yield Message(role="user", content=prompt.text)


def _size(message: Message) -> int:
    """Its characters, about."""
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return FRAME + len(message.content or "") + len(message.reasoning or "") + calls


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


def _shown(message: Message) -> Part:
    parts: list[Part] = []
    if message.reasoning:
        parts.append({"type": "reasoning", "content": message.reasoning})
    if message.role == "tool":
        said = message.content or ""
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "response": said})
    else:
        texts = message.parts or (message.content,) * (message.content is not None)
        parts += [_part(text) for text in texts]
    for call in message.tool_calls:
        parts.append(
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        )
    return {"role": message.role, "parts": parts}


def _part(text: str | None) -> Part:
    """None stands for an image: its kind is shown, not its bytes."""
    return {"type": "image"} if text is None else {"type": "text", "content": text}
