"""The loop of one choice with server tools: the model answers, its calls run, it answers again.

Called by the generation for each choice of a request that offers server tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from proxy.domain.events import Events, ServerToolCalled
from proxy.domain.output import FinishReason
from proxy.domain.request import ChatPrompt, GenerationRequest, Message, Prompt
from proxy.domain.server_tools import ServerTools, ToolRunner
from proxy.server_tools.parallel_calls import FinishedCall, ParallelCalls
from proxy.server_tools.tool_offer import (
    allow_answer,
    server_tool_names,
    withdraw_server_tools,
)
from proxy.server_tools.tool_round import EarlierRounds, ToolRound

SHOWN_RESULT_CHARS = 2_000  # of a tool's result, to the client

GenerateAnswer = Callable[[GenerationRequest], Events]


def run_tool_loop(
    answer: GenerateAnswer, request: GenerationRequest, tools: ServerTools, runner: ToolRunner
) -> Events:
    """One choice's events. Calls of server tools are run, and their results go to the model.

    An answer that calls one of the caller's tools ends the choice; its calls of server tools are
    then not run. When the rounds or the seconds are used up, the model answers once more without
    server tools. `max_tokens`, `min_tokens` and the thinking budget hold for all rounds together,
    and usage and times are sums over all rounds.
    """
    if not server_tool_names(request):
        return answer(request)
    calls = ParallelCalls(tools.tools, runner, request_id=request.id, seconds=tools.max_seconds)
    return _ToolLoop(answer, request, calls, rounds=tools.max_rounds).events()


class _ToolLoop:
    def __init__(
        self,
        answer: GenerateAnswer,
        request: GenerationRequest,
        calls: ParallelCalls,
        *,
        rounds: int,
    ) -> None:
        self._answer = answer
        self._request = request
        self._calls = calls
        self._rounds_left = rounds
        self._reported = 0

    async def events(self) -> Events:
        request, earlier = self._request, EarlierRounds()
        while True:
            current = ToolRound(server_tool_names(request), earlier)
            async with aclosing(self._answer(request)) as events:
                async for event in events:
                    if (visible := current.push(event)) is not None:
                        yield visible
            earlier = current.after()
            is_over = not current.needs_results(is_named=request.tool_choice.is_named)
            if is_over or 0 in (
                _left(request.max_tokens, current),
                _left(request.token_cap, current),
            ):
                not_run = [FinishedCall(call=call) for call in current.calls]
                for report in self._reports(not_run, current):
                    yield report
                reason = current.end.reason if is_over else FinishReason.LENGTH
                yield replace(current.end, usage=earlier.usage, times=earlier.times, reason=reason)
                return
            finished = await self._calls.run(current.calls)
            for report in self._reports(finished, current):
                yield report
            request = self._next(request, current, finished)

    def _reports(
        self, calls: Sequence[FinishedCall], current: ToolRound
    ) -> Iterator[ServerToolCalled]:
        """The events that report calls of server tools, if the client asked for them."""
        for done in calls if self._request.reports_server_calls else ():
            yield ServerToolCalled(
                index=self._reported,
                choice=current.end.choice,
                id=done.call.id,
                name=done.call.name,
                arguments=done.call.arguments,
                status=done.result.status,
                result=_cut(done.result.text),
                duration_ms=done.duration_ms,
            )
            self._reported += 1

    def _next(
        self, request: GenerationRequest, current: ToolRound, finished: Sequence[FinishedCall]
    ) -> GenerationRequest:
        """The next round's request: the chat with the results, and what is left of each limit.

        After the last round the server tools are left out, so that the model answers.
        """
        self._rounds_left -= 1
        request = allow_answer(request)
        if not self._rounds_left or not self._calls.has_time:
            request = withdraw_server_tools(request)
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


def _with_results(
    prompt: Prompt, current: ToolRound, finished: Sequence[FinishedCall]
) -> ChatPrompt:
    """The chat with the model's calls and their results."""
    assert isinstance(prompt, ChatPrompt)  # only chats are offered tools
    messages, text = prompt.messages, current.text
    if prompt.continues_last:
        messages, text = messages[:-1], (messages[-1].content or "") + text
    calling = Message(
        role="assistant",
        content=text or None,
        tool_calls=tuple(current.calls),
        reasoning=current.reasoning or None,
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


def _left(tokens: int | None, current: ToolRound) -> int | None:
    """What this round leaves of a token limit."""
    return None if tokens is None else max(tokens - current.end.usage.completion_tokens, 0)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_RESULT_CHARS else f"{text[:SHOWN_RESULT_CHARS]}…"
