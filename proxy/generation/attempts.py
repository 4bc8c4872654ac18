"""Checks finished answers, and generates again those that do not conform. Used by `answer_streams`.

No event of an answer is passed on before the answer is known to conform, with one exception: an
answer that is streamed live, by a model whose `stream_mode` is optimistic, is passed on as it comes
and ends with an error if it does not conform.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from proxy.domain.completion import Answer, fold_choice
from proxy.domain.errors import ErrorCode, InvalidRequest, RequestError, counted
from proxy.domain.events import Events, Finished, OutputEvent
from proxy.domain.output import AnswerTimes, Usage
from proxy.domain.record import RequestRecord
from proxy.domain.request import ChatPrompt, GenerationRequest, Message
from proxy.language.structured.checks import Check, Checker

SEED_STEP = 1000  # more than a request has choices

Generate = Callable[[GenerationRequest], Events]  # -> one choice's events


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The attempts at one choice. `caller`: for the checker. `at_most`: attempts."""

    check: Check
    checker: Checker
    caller: str
    at_most: int
    record: RequestRecord

    async def live(self, events: Events) -> Events:
        """One attempt, passed on as it comes.

        Raises:
            RequestError: in place of the last event, where the answer does not conform.
        """
        self._count(1)
        seen: list[OutputEvent] = []
        async with aclosing(events):
            async for event in events:
                seen.append(event)
                if isinstance(event, Finished):
                    violation = await self._violation(fold_choice(seen)[0])
                    if violation is not None:
                        raise self._error(violation, attempts=1)
                yield event

    async def held_back(self, generate: Generate, request: GenerationRequest) -> Events:
        """The events of the first answer that conforms; usage and times are of all attempts.

        Raises:
            RequestError: none did.
        """
        spent, times, attempted, violation = Usage(), AnswerTimes(), request, None
        for number in range(1, self.at_most + 1):
            self._count(number)
            events = await self._attempt(generate(attempted), number)
            if events is None:
                break
            answer, finished = fold_choice(events)
            violation = await self._violation(answer)
            if violation is None:
                for event in events:
                    yield _with_spent(event, spent, times)
                return
            spent += finished.usage
            times += finished.times
            attempted = self._next_request(request, answer, violation, number)
        raise self._error(str(violation), attempts=number)

    async def _attempt(self, events: Events, number: int) -> list[OutputEvent] | None:
        """None where a later attempt is refused, because of what was added to the prompt."""
        try:
            async with aclosing(events):
                return [event async for event in events]
        except InvalidRequest:
            if number == 1:
                raise
            return None

    def _next_request(
        self, request: GenerationRequest, answer: Answer, violation: str, number: int
    ) -> GenerationRequest:
        """The same request with a new seed; in a chat, with the violation appended."""
        sampling, prompt = request.sampling, request.prompt
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + number * SEED_STEP)
        if isinstance(prompt, ChatPrompt) and not prompt.continues_last:
            words = (
                f"Your answer does not conform: {violation}. Answer again, with nothing but "
                f"{self.check.requirement}"
            )
            turns = (
                Message(role="assistant", content=_said(answer)),
                Message(role="user", content=words),
            )
            prompt = replace(prompt, messages=(*prompt.messages, *turns))
        return replace(
            request,
            id=f"{request.id}-again{number}",
            prompt=prompt,
            sampling=sampling,
            prompt_cap=None,  # the caller's own prompt was let through
        )

    def _count(self, number: int) -> None:
        self.record.attempts = max(self.record.attempts or 0, number)

    async def _violation(self, answer: Answer) -> str | None:
        return await self.checker.violation(self.check, answer, self.caller)

    def _error(self, violation: str, *, attempts: int) -> RequestError:
        times = counted(attempts, "attempt")
        return RequestError(
            f"The model's answer does not conform to '{self.check.field}' after {times}: "
            f"{violation}.",
            code=ErrorCode.SCHEMA_VIOLATION,
            param=self.check.field,
        )


def _said(answer: Answer) -> str:
    """Calls in words: not every template has room for calls without results."""
    calls = (f"{call.name}({call.arguments})" for call in answer.calls)
    return "\n".join(filter(None, (answer.text, *calls)))


def _with_spent(event: OutputEvent, spent: Usage, times: AnswerTimes) -> OutputEvent:
    if isinstance(event, Finished):
        return replace(event, usage=event.usage + spent, times=times + event.times)
    return event if event.usage is None else replace(event, usage=event.usage + spent)
