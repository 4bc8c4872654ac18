"""What a parser makes of text, added up."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from proxy.domain.events import TextDelta, ToolCallArguments, ToolCallStarted
from proxy.language.syntax.families import TOOL_FAMILIES as FAMILIES
from proxy.language.syntax.tool_parser import ToolParser


@dataclass
class Answer:
    text: str = ""
    names: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    is_cut: bool = False

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "arguments": json.loads(arguments)}
            for name, arguments in zip(self.names, self.arguments, strict=True)
        ]

    def add(self, event: object) -> None:
        if isinstance(event, TextDelta):
            self.text += event.text
        elif isinstance(event, ToolCallStarted):
            assert event.index == len(self.names)
            self.names.append(event.name)
            self.ids.append(event.id)
            self.arguments.append("")
        elif isinstance(event, ToolCallArguments):
            assert event.index == len(self.names) - 1
            self.arguments[event.index] += event.fragment
        else:
            raise AssertionError(event)


def parser_of(family: str, tools: dict[str, Any] | None = None) -> ToolParser:
    parser = FAMILIES[family](tools)
    parser.new_id = lambda name, index: f"id{index}"
    return parser


def answered(parser: ToolParser, pieces: list[str]) -> Answer:
    answer = Answer()
    for piece in pieces:
        for event in parser.push(piece):
            answer.add(event)
    for event in parser.flush():
        answer.add(event)
    answer.is_cut = parser.is_cut
    return answer
