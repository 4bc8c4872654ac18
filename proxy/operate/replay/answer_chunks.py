"""Answers of OpenAI's form, whole or as a stream: what their chunks say together. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

DATA, DONE = "data:", "[DONE]"
TEXTS = ("content", "text", "reasoning_content", "reasoning", "refusal")


def chunks_of(answer: str) -> Iterator[Mapping[str, Any]]:
    """The body, or the data of each event. What is no JSON object is left out."""
    lines = [line for line in answer.splitlines() if line.startswith(DATA)]
    for text in [line.removeprefix(DATA).strip() for line in lines] or [answer]:
        if text == DONE:
            continue
        try:
            found = orjson.loads(text)
        except ValueError:
            continue
        if isinstance(found, Mapping):
            yield found


class JoinedChoices:
    """by_index: the choices of an answer. `add` takes its chunks; a whole answer is one chunk."""

    def __init__(self) -> None:
        self.by_index: dict[int, JoinedChoice] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        for each in objects(chunk.get("choices")):
            self.by_index.setdefault(_index(each), JoinedChoice()).add(each)

    @property
    def ordered(self) -> list[JoinedChoice]:
        return [self.by_index[index] for index in sorted(self.by_index)]


class JoinedChoice:
    """What the chunks of a choice have.

    finish: "" without a reason. texts: by name, of TEXTS.
    """

    def __init__(self) -> None:
        self.finish = ""
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, str]] = {}

    @property
    def texts(self) -> dict[str, str]:
        return {name: "".join(self._texts[name]) for name in sorted(self._texts)}

    @property
    def calls(self) -> list[Mapping[str, str]]:
        """Each with id, name and arguments, as texts."""
        return [self._calls[at] for at in sorted(self._calls)]

    def add(self, chunk: Mapping[str, Any]) -> None:
        self.finish = str(chunk.get("finish_reason") or self.finish)
        message = chunk.get("delta") or chunk.get("message") or chunk
        if not isinstance(message, Mapping):
            return
        for name in TEXTS:
            if isinstance(text := message.get(name), str):
                self._texts.setdefault(name, []).append(text)
        for number, call in enumerate(objects(message.get("tool_calls"))):
            at = call.get("index")
            self._add_call(at if isinstance(at, int) else number, call)

    def _add_call(self, at: int, chunk: Mapping[str, Any]) -> None:
        call = self._calls.setdefault(at, {"id": "", "name": "", "arguments": ""})
        call["id"] = str(chunk.get("id") or call["id"])
        function = chunk.get("function")
        if isinstance(function, Mapping):
            for name in ("name", "arguments"):
                call[name] += str(function.get(name) or "")


def objects(value: Any) -> list[Mapping[str, Any]]:
    """Those of a list; none where it is no list."""
    found = value if isinstance(value, list) else []
    return [each for each in found if isinstance(each, Mapping)]


def _index(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0
