"""Rounds of a model that calls tools of the server, without a model and without tools."""

from __future__ import annotations

import asyncio

from proxy.domain.completion import Completion, fold
from proxy.domain.events import (
    OutputEvent,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.domain.request import ChatPrompt, GenerationRequest, Message
from proxy.domain.server_tools import ServerTool, ServerTools
from proxy.domain.tools import Tool
from proxy.server_tools.tool_loop import run_tool_loop
from tests.doubles.answers import Answers
from tests.doubles.tools import ScriptedTools

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ServerTool(name="weather", url="http://tools.example/w", parameters=SCHEMA)
CLOCK = ServerTool(name="clock", url="http://tools.example/c")
OURS = ServerTools(tools=(WEATHER, CLOCK), max_rounds=3)
THEIRS = Tool(name="theirs")
HI = Message(role="user", content="hi")


def said(text: str) -> list[OutputEvent]:
    return [TextDelta(text)]


def called(*calls: tuple[str, str]) -> list[OutputEvent]:
    """Name and arguments; the arguments in two pieces."""
    events: list[OutputEvent] = []
    for index, (name, arguments) in enumerate(calls):
        events.append(ToolCallStarted(index=index, id=f"c{index}", name=name))
        half = len(arguments) // 2
        for fragment in (arguments[:half], arguments[half:]):
            events.append(ToolCallArguments(index=index, fragment=fragment))
    return events


OSLO = ("weather", '{"city": "Oslo"}')
NOW = ("clock", "{}")


def asked(*theirs: Tool, **fields) -> GenerationRequest:
    given = {
        "id": "r",
        "model": "m",
        "prompt": ChatPrompt(messages=(HI,)),
        "tools": (*theirs, WEATHER.offered, CLOCK.offered),
    }
    return GenerationRequest(**given | fields)


def events_of(
    answers: Answers, tools: ScriptedTools, request: GenerationRequest, ours: ServerTools = OURS
) -> list[OutputEvent]:
    async def all_of_them() -> list[OutputEvent]:
        return [event async for event in run_tool_loop(answers, request, ours, tools)]

    return asyncio.run(all_of_them())


def completed(
    *scripts: list[OutputEvent], tools: ScriptedTools | None = None, **fields
) -> Completion:
    tools = tools or ScriptedTools({"weather": "12", "clock": "noon"})
    return fold(events_of(Answers(*scripts), tools, asked(**fields)))
