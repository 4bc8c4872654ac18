"""The tool loop: rounds of answers and calls, over scripted answers and scripted tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.domain.completion import Completion, fold
from proxy.domain.events import (
    Finished,
    OutputEvent,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.domain.output import FinishReason, Usage
from proxy.domain.request import ChatPrompt, GenerationRequest, Message
from proxy.domain.server_tools import CallStatus, ServerTool, ServerTools, ToolResult
from proxy.domain.tools import Tool, ToolChoice, ToolMode
from proxy.server_tools.tool_loop import (
    AT_ONCE,
    SHOWN_RESULT_CHARS,
    InvalidArguments,
    parse_arguments,
    run_tool_loop,
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ServerTool(name="weather", url="http://tools.example/w", parameters=SCHEMA)
CLOCK = ServerTool(name="clock", url="http://tools.example/c")
OURS = ServerTools(tools=(WEATHER, CLOCK), max_rounds=3)
THEIRS = Tool(name="theirs")
HI = Message(role="user", content="hi")


class Answers:
    """Gives these answers one after another; each costs 10 and 5 tokens, 2 of reasoning."""

    def __init__(self, *scripts: list[OutputEvent], reason: FinishReason | None = None) -> None:
        self.scripts = scripts
        self.reason = reason
        self.requests: list[GenerationRequest] = []

    async def __call__(self, request: GenerationRequest) -> AsyncGenerator[OutputEvent, None]:
        script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
        self.requests.append(request)
        for event in script:
            yield event
        has_calls = any(isinstance(event, ToolCallStarted) for event in script)
        is_called = has_calls and not request.tool_choice.is_named
        reason = self.reason or (FinishReason.TOOL_CALLS if is_called else FinishReason.STOP)
        usage = Usage(prompt_tokens=10, completion_tokens=5, reasoning_tokens=2)
        yield Finished(reason=reason, usage=usage)


class ScriptedTools:
    """Answers each tool by its name, and keeps what it was asked. `takes_s` passes first."""

    def __init__(self, texts: Mapping[str, str] | None = None, *, takes_s: float = 0) -> None:
        self.texts = texts or {}
        self.takes_s = takes_s
        self.asked: list[str] = []
        self.most_at_once = self._running = 0

    async def run(
        self, tool: ServerTool, arguments: Mapping[str, Any], *, timeout_s: float
    ) -> ToolResult:
        self.asked.append(tool.name)
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        await asyncio.sleep(self.takes_s)
        self._running -= 1
        return ToolResult(status=CallStatus.OK, text=self.texts[tool.name])


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


def test_calls_run_side_by_side_but_not_too_many():
    tools = ScriptedTools({"clock": "noon"}, takes_s=0.01)
    completed(called(*[NOW] * (2 * AT_ONCE)), said("ok"), tools=tools)
    assert (len(tools.asked), tools.most_at_once) == (2 * AT_ONCE, AT_ONCE)


def test_at_the_bound_of_time_too():
    answers = Answers(called(NOW), said("enough"))
    ours = ServerTools(tools=(WEATHER, CLOCK), max_seconds=0.001)
    tools = ScriptedTools({"clock": "noon"}, takes_s=0.01)
    assert fold(events_of(answers, tools, asked(), ours)).text == "enough"
    assert answers.requests[-1].callable_tools == ()


def test_an_operators_limit_holds_for_all_rounds_together():
    answers = Answers(called(OSLO), said("Cold."))
    tools = ScriptedTools({"weather": "-3"})
    events_of(answers, tools, asked(token_cap=40, prompt_cap=9))
    capped = [(one.max_tokens, one.token_cap, one.prompt_cap) for one in answers.requests]
    assert capped == [(None, 40, 9), (None, 35, None)], "results are not the caller's prompt"


@pytest.mark.parametrize("limit", ["max_tokens", "token_cap"])
def test_where_no_token_is_left_nothing_is_run(limit):
    answers, tools = Answers(called(NOW), said("ok")), ScriptedTools()
    whole = fold(events_of(answers, tools, asked(**{limit: 5})))
    assert (whole.reason, tools.asked, len(answers.requests)) == (FinishReason.LENGTH, [], 1)


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.STOP])
def test_a_call_that_was_cut_off_is_not_run(reason):
    cut = ("weather", '{"city": "Os')
    answers, tools = Answers(called(cut), reason=reason), ScriptedTools()
    named = ToolChoice(mode=ToolMode.REQUIRED, allowed=("weather",), is_named=True)
    for choice in (ToolChoice(), named):
        whole = fold(events_of(answers, tools, asked(tool_choice=choice)))
        assert (whole.reason, whole.choices[0].calls, tools.asked) == (reason, (), [])


def test_a_call_that_nests_without_end_is_not_run():
    answers, tools = Answers(called(("weather", "[" * 20_000))), ScriptedTools()
    events_of(answers, tools, asked())
    assert (tools.asked, len(answers.requests)) == ([], 1)


def test_of_a_long_result_the_client_gets_the_beginning():
    tools = ScriptedTools({"weather": "x" * (SHOWN_RESULT_CHARS + 1)})
    whole = completed(called(OSLO), said("ok"), tools=tools, reports_server_calls=True)
    (call,) = whole.choices[0].server_calls
    assert call.result == "x" * SHOWN_RESULT_CHARS + "…"


def test_a_continued_message_becomes_one_with_what_the_model_added():
    messages = (HI, Message(role="assistant", content="So, "))
    prompt = ChatPrompt(messages=messages, continues_last=True, adds_generation_prompt=False)
    answers = Answers([*said("let me see."), *called(NOW)], said("ok"))
    events_of(answers, ScriptedTools({"clock": "noon"}), asked(prompt=prompt))
    second = answers.requests[1].prompt
    assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
    assert second.messages[1].content == "So, let me see."
    assert (second.continues_last, second.adds_generation_prompt) == (False, True)


def test_each_call_is_a_line_of_the_log_without_its_arguments():
    with capture_logs() as lines:
        completed(called(OSLO), said("ok"), tools=ScriptedTools({"weather": "12"}))
    (line,) = lines
    assert (line["event"], line["tool"], line["status"]) == ("server_tool", "weather", "ok")
    assert line["argument_chars"] == len(OSLO[1])
    assert "Oslo" not in json.dumps(line)


TOOL = ServerTool(
    name="weather",
    url="http://x",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "array", "maxItems": 2}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"city": ', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('["Oslo"]', "not a JSON object"),
        ("{}", '"city" is a required property'),
        ('{"city": 3}', r"\['city'\] are wrong"),
        ('{"city": "Oslo", "unit": "C"}', "unit"),
    ],
)
def test_wrong_ones_are_told_in_words_for_the_model(text, words):
    with pytest.raises(InvalidArguments, match=words):
        parse_arguments(TOOL, text)
