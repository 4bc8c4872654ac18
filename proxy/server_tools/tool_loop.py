"""Server tools of one request: which are offered, and the loop of answers and calls.

The service offers them, and runs the loop for each choice of a request that offers some.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import jsonschema_rs
import structlog

from proxy.domain.errors import EngineFailed, InvalidRequest, unsupported
from proxy.domain.events import (
    AnyDelta,
    Events,
    Finished,
    OutputEvent,
    ReasoningDelta,
    ServerToolCalled,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.domain.model import ModelCard
from proxy.domain.output import AnswerTimes, FinishReason, Usage
from proxy.domain.record import StageName, stage
from proxy.domain.request import ChatPrompt, GenerationRequest, Message, Prompt
from proxy.domain.server_tools import CallStatus, ServerTool, ServerTools, ToolResult, ToolRunner
from proxy.domain.tools import ToolCall, ToolChoice, ToolMode

AT_ONCE = 8  # calls of one round
SHOWN_RESULT_CHARS = 2_000  # of a tool's result, to the client
ECHOED_AT_MOST = 300
NOT_RUN = ToolResult(status=CallStatus.NOT_RUN, text="")

logger = structlog.get_logger(__name__)

GenerateAnswer = Callable[[GenerationRequest], Events]


def offer_server_tools(request: GenerationRequest, card: ModelCard) -> GenerationRequest:
    """Adds the model's server tools to the caller's tools of a chat.

    A request with `tool_choice` none does not get them, and one with a constraint on its answer
    only if the caller asks for them.

    Raises:
        InvalidRequest: a caller's tool has the name of a server tool, or the caller asks for
            server tools and the model has none.
    """
    ours = card.server_tools.tools
    if not isinstance(request.prompt, ChatPrompt):
        return request
    if not ours:
        if request.offers_server_tools or request.reports_server_calls:
            name = "server_tools" if request.offers_server_tools else "server_tool_events"
            raise unsupported(
                f"The model {card.name!r} has no tools that the server runs.", param=name
            )
        return request
    default = request.constraint is None
    is_wanted = default if request.offers_server_tools is None else request.offers_server_tools
    if not is_wanted or request.tool_choice.mode is ToolMode.NONE:
        return request
    names = {tool.name for tool in ours}
    for at, tool in enumerate(request.tools):
        if tool.name in names:
            path = f"tools[{at}].{'custom' if tool.is_custom else 'function'}.name"
            raise InvalidRequest(
                f"'{path}' is {tool.name!r}, as a tool's of this server is: rename yours. OpenAI's "
                "APIs can also leave the server's out: `server_tools`.",
                param=path,
            )
    return replace(request, tools=(*request.tools, *(tool.offered for tool in ours)))


def run_tool_loop(
    answer: GenerateAnswer, request: GenerationRequest, tools: ServerTools, runner: ToolRunner
) -> Events:
    """One choice's events. Calls of server tools are run, and their results go to the model.

    An answer that calls one of the caller's tools ends the choice; its calls of server tools are
    then not run. When the rounds or the seconds are used up, the model answers once more without
    server tools. `max_tokens`, `min_tokens` and the thinking budget hold for all rounds together,
    and usage and times are sums over all rounds.
    """
    if not _callable_here(request):
        return answer(request)
    return _ToolLoop(answer, request, tools, runner).events()


def _callable_here(request: GenerationRequest) -> frozenset[str]:
    """Names of the server tools that the model may call."""
    return frozenset(tool.name for tool in request.callable_tools if tool.runs_here)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    """A call with its result."""

    call: ToolCall
    result: ToolResult = NOT_RUN
    duration_ms: float = 0.0


class _ToolLoop:
    def __init__(
        self,
        answer: GenerateAnswer,
        request: GenerationRequest,
        tools: ServerTools,
        runner: ToolRunner,
    ) -> None:
        self._answer = answer
        self._request = request
        self._tools = {tool.name: tool for tool in tools.tools}
        self._runner = runner
        self._rounds_left = tools.max_rounds
        self._seconds_left = tools.max_seconds
        self._reported = 0

    async def events(self) -> Events:
        request, earlier = self._request, _Earlier()
        while True:
            current = _Round(_callable_here(request), earlier)
            async with aclosing(self._answer(request)) as events:
                async for event in events:
                    if (visible := current.push(event)) is not None:
                        yield visible
            earlier = current.after()
            is_over = not current.needs_results(is_named=request.tool_choice.is_named)
            limits = (request.max_tokens, request.token_cap)
            if is_over or 0 in (_left(each, current) for each in limits):
                not_run = [_Finished(call=call) for call in current.calls]
                for report in self._reports(not_run, current):
                    yield report
                reason = current.end.reason if is_over else FinishReason.LENGTH
                yield replace(current.end, usage=earlier.usage, times=earlier.times, reason=reason)
                return
            finished = await self._run(current.calls)
            for report in self._reports(finished, current):
                yield report
            request = self._next(request, current, finished)

    async def _run(self, calls: Sequence[ToolCall]) -> list[_Finished]:
        """Runs the calls, up to AT_ONCE at a time, and returns them in the same order.

        Cancelling it cancels the calls.
        """
        began, slots = time.monotonic(), asyncio.Semaphore(AT_ONCE)
        deadline = began + self._seconds_left

        async def in_turn(call: ToolCall) -> _Finished:
            async with slots:
                return await self._run_one(call, deadline)

        try:
            return await asyncio.gather(*map(in_turn, calls))
        finally:
            self._seconds_left -= time.monotonic() - began

    async def _run_one(self, call: ToolCall, deadline: float) -> _Finished:
        began, tool = time.monotonic(), self._tools[call.name]
        with stage(StageName.TOOL) as running:
            running.attributes["tool"] = call.name
            try:
                arguments = parse_arguments(tool, call.arguments)
            except InvalidArguments as error:
                result = ToolResult(status=CallStatus.INVALID_ARGUMENTS, text=str(error))
            else:
                timeout_s = min(tool.timeout_s, max(deadline - began, 0))
                result = await self._runner.run(tool, arguments, timeout_s=timeout_s)
        duration_ms = round((time.monotonic() - began) * 1000, 1)
        logger.info(
            "server_tool",
            id=self._request.id,
            tool=call.name,
            status=result.status.value,
            argument_chars=len(call.arguments),
            response_bytes=result.response_bytes,
            duration_ms=duration_ms,
        )
        return _Finished(call=call, result=result, duration_ms=duration_ms)

    def _reports(self, calls: Sequence[_Finished], current: _Round) -> Iterator[ServerToolCalled]:
        """The events that report calls of server tools, if the client asked for them."""
        for done in calls if self._request.reports_server_calls else ():
            text = done.result.text
            is_long = len(text) > SHOWN_RESULT_CHARS
            yield ServerToolCalled(
                index=self._reported,
                choice=current.end.choice,
                id=done.call.id,
                name=done.call.name,
                arguments=done.call.arguments,
                status=done.result.status,
                result=f"{text[:SHOWN_RESULT_CHARS]}…" if is_long else text,
                duration_ms=done.duration_ms,
            )
            self._reported += 1

    def _next(
        self, request: GenerationRequest, current: _Round, finished: Sequence[_Finished]
    ) -> GenerationRequest:
        """The next round's request: the chat with the results, and what is left of each limit.

        Tool calls are optional after the model has called, so that it may answer. A tool that the
        caller named alone no longer excludes the others; a list of allowed tools does. After the
        last round only the caller's tools are left, and a call of any other is then text.
        """
        self._rounds_left -= 1
        choice = request.tool_choice
        allowed = None if choice.is_named else choice.allowed
        request = replace(request, tool_choice=ToolChoice(allowed=allowed))
        if not self._rounds_left or self._seconds_left <= 0:
            tools = tuple(tool for tool in request.callable_tools if not tool.runs_here)
            names = tuple(tool.name for tool in tools)
            request = replace(request, tools=tools, tool_choice=ToolChoice(allowed=names or None))
        least, budget = request.sampling.min_tokens, request.thinking_budget
        usage = current.end.usage
        if least is not None:
            least = max(least - usage.completion_tokens, 0) or None
        if budget is not None:
            budget = max(budget - usage.reasoning_tokens, 0)
        return replace(
            request,
            id=f"{request.id}-on",
            prompt=_with_results(request.prompt, current, finished),
            max_tokens=_left(request.max_tokens, current),
            token_cap=_left(request.token_cap, current),
            prompt_cap=None,  # the caller's own prompt has passed this check
            sampling=replace(request.sampling, min_tokens=least),
            thinking_budget=budget,
        )


def _with_results(prompt: Prompt, current: _Round, finished: Sequence[_Finished]) -> ChatPrompt:
    """The chat with the model's calls and their results."""
    assert isinstance(prompt, ChatPrompt)  # only chats are offered tools
    messages, text = prompt.messages, "".join(current.text)
    if prompt.continues_last:
        messages, text = messages[:-1], (messages[-1].content or "") + text
    calling = Message(
        role="assistant",
        content=text or None,
        tool_calls=tuple(current.calls),
        reasoning="".join(current.reasoning) or None,
    )
    results = (
        Message(
            role="tool", content=done.result.text, name=done.call.name, tool_call_id=done.call.id
        )
        for done in finished
    )
    return replace(
        prompt,
        messages=(*messages, calling, *results),
        adds_generation_prompt=True,
        continues_last=False,
    )


def _left(tokens: int | None, current: _Round) -> int | None:
    """What this round leaves of a token limit."""
    return None if tokens is None else max(tokens - current.end.usage.completion_tokens, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Earlier:
    """What earlier rounds took, and the tail of the text that the client has already received."""

    usage: Usage = field(default_factory=Usage)
    times: AnswerTimes = field(default_factory=AnswerTimes)
    text: str = ""
    reasoning: str = ""


class _Round:
    """Takes all events of one answer through `push`, then reports how the answer ended.

    Calls of the caller's tools pass to the client; calls of `server_tools` are collected. A blank
    line separates the texts of two rounds.
    """

    def __init__(self, server_tools: Collection[str], earlier: _Earlier) -> None:
        self._server_tools = server_tools
        self._earlier = earlier
        self._calls: dict[int, tuple[ToolCallStarted, list[str]]] = {}  # with their fragments
        self._passed: dict[int, int] = {}
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self._end: Finished | None = None

    def push(self, event: OutputEvent) -> AnyDelta | None:
        """The event as the client receives it; None if it receives nothing."""
        if isinstance(event, Finished):
            self._end = event
            return None
        if event.usage is not None:
            event = replace(event, usage=self._earlier.usage + event.usage)
        if isinstance(event, TextDelta):
            return _separated(event, self.text, self._earlier.text)
        if isinstance(event, ReasoningDelta):
            return _separated(event, self.reasoning, self._earlier.reasoning)
        if isinstance(event, ToolCallStarted):
            if event.name in self._server_tools:
                self._calls[event.index] = (event, [])
                return None
            self._passed[event.index] = len(self._passed)
        if isinstance(event, (ToolCallStarted, ToolCallArguments)):
            if event.index not in self._calls:
                return replace(event, index=self._passed[event.index])
            if isinstance(event, ToolCallArguments):
                self._calls[event.index][1].append(event.fragment)
            return None
        return event

    @property
    def end(self) -> Finished:
        """The answer's last event. Raises EngineFailed: it has not been pushed."""
        if self._end is None:
            raise EngineFailed("The model's answer ended without a finish reason.")
        return self._end

    @property
    def calls(self) -> list[ToolCall]:
        """Calls of server tools; the token limit may have cut off the last one."""
        return [
            ToolCall(id=began.id, name=began.name, arguments="".join(fragments))
            for began, fragments in self._calls.values()
        ]

    def needs_results(self, *, is_named: bool) -> bool:
        """Whether the answer is nothing but complete calls of server tools.

        is_named: the caller named the one tool to call. Such an answer ends with `stop`, not with
        `tool_calls`; one that a stop string cut off does, too, so the JSON is checked.
        """
        if self._passed or not self._calls:
            return False
        wanted = FinishReason.STOP if is_named else FinishReason.TOOL_CALLS
        return self.end.reason is wanted and all(_is_json(call.arguments) for call in self.calls)

    def after(self) -> _Earlier:
        """The earlier rounds, from the next round's view."""
        return _Earlier(
            usage=self._earlier.usage + self.end.usage,
            times=self._earlier.times + self.end.times,
            text="".join(self.text) or self._earlier.text,
            reasoning="".join(self.reasoning) or self._earlier.reasoning,
        )


def _separated(
    event: TextDelta | ReasoningDelta, so_far: list[str], earlier: str
) -> TextDelta | ReasoningDelta:
    """The event, with a blank line before the first text after an earlier round's."""
    is_first = bool(event.text) and not so_far
    if event.text:
        so_far.append(event.text)
    if is_first and earlier and not earlier[-1].isspace():
        return replace(event, text=f"\n\n{event.text}")
    return event


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class InvalidArguments(ValueError):
    """The message tells the model what is wrong with the arguments it wrote, and where."""


def check_schema(tool: str, schema: dict[str, Any]) -> None:
    """Raises ValueError: `schema` is not a JSON Schema, or refers to another document."""
    try:
        jsonschema_rs.validator_for(schema, retriever=_refuse_reference)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        reason = error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error)
        raise ValueError(f"the parameters of {tool!r} are not a JSON Schema: {reason}") from error


def parse_arguments(tool: ServerTool, text: str) -> dict[str, Any]:
    """The arguments in the JSON text.

    Raises:
        InvalidArguments: the text is not a JSON object, or breaks the tool's schema.
    """
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArguments("The arguments are not valid JSON.") from None
    if not isinstance(arguments, dict):
        raise InvalidArguments("The arguments are not a JSON object.")
    validator = jsonschema_rs.validator_for(dict(tool.parameters), retriever=_refuse_reference)
    for error in validator.iter_errors(arguments):
        where = "".join(f"[{part!r}]" for part in error.instance_path)
        raise InvalidArguments(
            f"The arguments{where} are wrong: {error.message[:ECHOED_AT_MOST]}. Correct them and "
            "call the tool again."
        )
    return arguments


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"{uri} is another document; only references within the schema are followed")
