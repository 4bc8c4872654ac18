"""Generate, check, and try again with the check's words: events in, events out. Called by service.

Nothing of an answer goes out before it is known to conform; only one that is streamed live, by a
model whose `stream_mode` is optimistic, goes out as it comes and ends in an error if it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from triton_openai.proxy.domain.completion import Answer, fold_choice
from triton_openai.proxy.domain.delivery import Delivery
from triton_openai.proxy.domain.errors import InvalidRequest, SchemaViolation
from triton_openai.proxy.domain.events import Events, Finished, OutputEvent
from triton_openai.proxy.domain.output import Usage
from triton_openai.proxy.domain.request import ChatPrompt, GenerationRequest, Message
from triton_openai.proxy.structured.checker import Checker
from triton_openai.proxy.structured.checks import Check

SEED_STEP = 1000  # more than a request has choices

# (request, whether its prompt counts in usage) -> one choice's events
Generate = Callable[[GenerationRequest, bool], Events]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """What one choice's answer must be, and how often it is tried. `caller`: for the checker."""

    check: Check
    checker: Checker
    caller: str
    at_most: int
    delivery: Delivery

    async def live(self, events: Events) -> Events:
        """One attempt, passed on as it comes.

        Raises:
            SchemaViolation: in place of the last event, where the answer does not conform.
        """
        self.delivery.attempted(1)
        seen: list[OutputEvent] = []
        async with aclosing(events):
            async for event in events:
                seen.append(event)
                if isinstance(event, Finished):
                    violation = await self._violation(fold_choice(seen)[0])
                    if violation is not None:
                        raise self._error(violation, attempts=1)
                yield event

    async def held_back(
        self, generate: Generate, request: GenerationRequest, *, counts_prompt: bool
    ) -> Events:
        """The events of the first answer that conforms; usage is that of all.

        Raises:
            SchemaViolation: none did.
        """
        spent, asked, violation = Usage(), request, None
        for number in range(1, self.at_most + 1):
            self.delivery.attempted(number)
            events = await self._attempt(generate(asked, counts_prompt or number > 1), number)
            if events is None:
                break
            answer, finished = fold_choice(events)
            violation = await self._violation(answer)
            if violation is None:
                for event in events:
                    yield _with_spent(event, spent)
                return
            spent += finished.usage
            asked = self._again(request, answer, violation, number)
        raise self._error(str(violation), attempts=number)

    async def _attempt(self, events: Events, number: int) -> list[OutputEvent] | None:
        """None where the model cannot be asked again, for what was added to the prompt."""
        try:
            async with aclosing(events):
                return [event async for event in events]
        except InvalidRequest:
            if number == 1:
                raise
            return None

    def _again(
        self, request: GenerationRequest, answer: Answer, violation: str, number: int
    ) -> GenerationRequest:
        """The same with other random numbers, and in a chat with what is wrong."""
        sampling, prompt = request.sampling, request.prompt
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + number * SEED_STEP)
        if isinstance(prompt, ChatPrompt) and not prompt.continues_last:
            words = (
                f"Your answer does not conform: {violation}. Answer again, with nothing but "
                f"{self.check.wanted}"
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

    async def _violation(self, answer: Answer) -> str | None:
        return await self.checker.violation(self.check, answer, self.caller)

    def _error(self, violation: str, *, attempts: int) -> SchemaViolation:
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        return SchemaViolation(
            f"The model's answer does not conform to '{self.check.field}' after {times}: "
            f"{violation}.",
            param=self.check.field,
        )


def _said(answer: Answer) -> str:
    """Calls in words: not every template has room for calls without results."""
    calls = (f"{call.name}({call.arguments})" for call in answer.calls)
    return "\n".join(filter(None, (answer.text, *calls)))


def _with_spent(event: OutputEvent, spent: Usage) -> OutputEvent:
    return event if event.usage is None else replace(event, usage=event.usage + spent)
