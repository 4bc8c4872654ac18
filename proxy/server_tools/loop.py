"""Runs the server's tools that a model calls, and lets it continue. Used by `answer_streams`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from triton_openai.proxy.domain.events import Events, ServerToolCalled
from triton_openai.proxy.domain.output import FinishReason
from triton_openai.proxy.domain.request import ChatPrompt, GenerationRequest, Message, Prompt
from triton_openai.proxy.domain.server_tools import ServerTools, ToolRunner
from triton_openai.proxy.server_tools.calls import Calls, Ran
from triton_openai.proxy.server_tools.offer import after_calls, names_offered, without_ours
from triton_openai.proxy.server_tools.round import Before, Round

RESULT_TOLD = 2_000  # characters of a result that the client is told

Answer = Callable[[GenerationRequest], Events]


def looped(
    answer: Answer, request: GenerationRequest, tools: ServerTools, runner: ToolRunner
) -> Events:
    """One choice's events; calls of the model's server tools are run and answered on the way.

    An answer that calls one of the caller's tools ends the choice, and calls of ours beside it are
    not run. At the bounds the model answers once more, without our tools. `max_tokens`,
    `min_tokens` and the thinking budget hold for all rounds together, and usage counts them all.
    """
    if not names_offered(request):
        return answer(request)
    calls = Calls(tools.tools, runner, request_id=request.id, seconds=tools.max_seconds)
    return _Loop(answer, request, calls, rounds=tools.max_rounds).events()


class _Loop:
    def __init__(
        self, answer: Answer, request: GenerationRequest, calls: Calls, *, rounds: int
    ) -> None:
        self._answer = answer
        self._request = request
        self._calls = calls
        self._rounds_left = rounds
        self._told = 0

    async def events(self) -> Events:
        request, before = self._request, Before()
        while True:
            one = Round(names_offered(request), before)
            async with aclosing(self._answer(request)) as events:
                async for event in events:
                    if (told := one.push(event)) is not None:
                        yield told
            before = one.after()
            is_over = not one.is_to_be_answered(is_named=request.tool_choice.is_named)
            if is_over or 0 in (_left(request.max_tokens, one), _left(request.token_cap, one)):
                for told in self._told_of([Ran(call=call) for call in one.calls], one):
                    yield told
                reason = one.end.reason if is_over else FinishReason.LENGTH
                yield replace(one.end, usage=before.usage, reason=reason)
                return
            ran = await self._calls.run(one.calls)
            for told in self._told_of(ran, one):
                yield told
            request = self._next(request, one, ran)

    def _told_of(self, ran: Sequence[Ran], one: Round) -> Iterator[ServerToolCalled]:
        """What the client is told of our calls, if it asked for it."""
        for done in ran if self._request.reports_server_calls else ():
            yield ServerToolCalled(
                index=self._told,
                choice=one.end.choice,
                id=done.call.id,
                name=done.call.name,
                arguments=done.call.arguments,
                status=done.result.status,
                result=_cut(done.result.text),
                duration_ms=done.duration_ms,
            )
            self._told += 1

    def _next(
        self, request: GenerationRequest, one: Round, ran: Sequence[Ran]
    ) -> GenerationRequest:
        """With the results. At the bounds our tools are left out, so that the model answers."""
        self._rounds_left -= 1
        request = after_calls(request)
        if not self._rounds_left or not self._calls.has_time:
            request = without_ours(request)
        least, budget = request.sampling.min_tokens, request.thinking_budget
        usage = one.end.usage
        if least is not None:
            least = max(least - usage.completion_tokens, 0) or None
        if budget is not None:
            budget = max(budget - usage.reasoning_tokens, 0)
        return replace(
            request,
            id=f"{request.id}-on",
            prompt=_answered(request.prompt, one, ran),
            max_tokens=_left(request.max_tokens, one),
            token_cap=_left(request.token_cap, one),
            prompt_cap=None,  # the caller's own prompt was let through
            sampling=replace(request.sampling, min_tokens=least),
            thinking_budget=budget,
        )


def _answered(prompt: Prompt, one: Round, ran: Sequence[Ran]) -> ChatPrompt:
    """The chat with the model's calls and their results."""
    assert isinstance(prompt, ChatPrompt)  # nobody else is offered tools
    messages, text = prompt.messages, one.text
    if prompt.continues_last:
        messages, text = messages[:-1], (messages[-1].content or "") + text
    calling = Message(
        role="assistant",
        content=text or None,
        tool_calls=tuple(one.calls),
        reasoning=one.reasoning or None,
    )
    results = (
        Message(
            role="tool", content=done.result.text, name=done.call.name, tool_call_id=done.call.id
        )
        for done in ran
    )
    return replace(
        prompt,
        messages=(*messages, calling, *results),
        adds_generation_prompt=True,
        continues_last=False,
    )


def _left(tokens: int | None, one: Round) -> int | None:
    """Of a limit of tokens, behind this round."""
    return None if tokens is None else max(tokens - one.end.usage.completion_tokens, 0)


def _cut(text: str) -> str:
    return text if len(text) <= RESULT_TOLD else f"{text[:RESULT_TOLD]}…"
