"""A request and its answer as attributes of a span: JSON by OpenTelemetry's GenAI schemas. Pure.

gen-ai-input-messages.json and gen-ai-output-messages.json of OpenTelemetry's semantic conventions,
in development. They allow JSON as a string. A long text is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from proxy.domain.timeline import Exchange
from proxy.telemetry.answer_chunks import (
    JoinedChoice,
    JoinedChoices,
    chunks_of,
    objects,
)
from proxy.telemetry.kept_requests import fields_of, may_be_kept
from proxy.telemetry.traces.attributes import CONTENT_CUT, CONTENT_LOST, INPUT, OUTPUT

MOST_CHARACTERS = 50_000  # of one attribute, about
FRAME = 60  # characters of a message, and of a part, besides their values
LONGEST_NAME = 200  # characters of a role, a function, an id
REASONING, SPOKEN = ("reasoning_content", "reasoning"), ("content", "text", "refusal")
TEXTS = frozenset({"content", "response", "arguments"})

Part = dict[str, Any]


def content_of(exchange: Exchange) -> dict[str, Any]:
    """Empty if the request has `store: false`, or is no JSON."""
    if exchange.lost is not None:
        return {CONTENT_LOST: exchange.lost}
    fields = fields_of(exchange.body)
    if fields is None or not may_be_kept(fields):
        return {}
    asked = _Messages(reversed([*_asked(fields)]))  # the newest are kept
    said = _Messages(_said(exchange.answer.decode("utf-8", "replace")))
    found: dict[str, Any] = {INPUT: asked.json(is_reversed=True), OUTPUT: said.json()}
    if asked.is_cut or said.is_cut:
        found[CONTENT_CUT] = True
    return found


class _Messages:
    """As many as fit into MOST_CHARACTERS, the last of them cut."""

    def __init__(self, messages: Iterable[Part]) -> None:
        self._left = MOST_CHARACTERS
        self.is_cut = False
        self._kept: list[Part] = []
        for message in messages:
            if self._left <= 0:
                self.is_cut = True
                break
            self._kept.append({**message, "parts": [*self._fitting(message["parts"])]})

    def json(self, *, is_reversed: bool = False) -> str:
        return orjson.dumps(self._kept[::-1] if is_reversed else self._kept).decode()

    def _fitting(self, parts: Iterable[Part]) -> Iterator[Part]:
        self._left -= FRAME
        for part in parts:
            if self._left <= 0:
                self.is_cut = True
                return
            self._left -= FRAME
            yield {name: self._cut(name, value) for name, value in part.items()}

    def _cut(self, name: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        most = max(self._left, 0) if name in TEXTS else LONGEST_NAME
        kept = value[:most]
        self._left -= len(kept)
        self.is_cut |= len(kept) < len(value)
        return kept


def _asked(fields: Mapping[str, Any]) -> Iterator[Part]:
    prompt = fields.get("prompt")
    for each in prompt if isinstance(prompt, list) else [prompt]:
        if isinstance(each, str):
            yield {"role": "user", "parts": [_text(each)]}
    for message in objects(fields.get("messages")):
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
        elif isinstance(each, Mapping):  # an image, for example: its kind, not its bytes
            yield {"type": str(each.get("type"))}
    for call in objects(message.get("tool_calls")):
        yield _call(call.get("id"), call.get("function"))


def _said(answer: str) -> Iterator[Part]:
    choices = JoinedChoices()
    for chunk in chunks_of(answer):
        choices.add(chunk)
    for choice in choices.ordered:
        yield _message(choice)


def _message(choice: JoinedChoice) -> Part:
    texts = choice.texts
    thought = next((texts[name] for name in REASONING if texts.get(name)), "")
    text = "".join(texts.get(name, "") for name in SPOKEN)
    parts = [{"type": "reasoning", "content": thought}] if thought else []
    parts += [_text(text)] if text else []
    parts += [_call(call["id"], call) for call in choice.calls]
    return {"role": "assistant", "parts": parts, "finish_reason": choice.finish}


def _text(text: str) -> Part:
    return {"type": "text", "content": text}


def _call(call_id: Any, function: Any) -> Part:
    """Arguments are the text that the model wrote."""
    named = function if isinstance(function, Mapping) else {}
    return {
        "type": "tool_call",
        "id": call_id if isinstance(call_id, str) else None,
        "name": str(named.get("name") or ""),
        "arguments": str(named.get("arguments") or ""),
    }
