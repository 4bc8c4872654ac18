"""A double of what generates a choice."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from proxy.domain.events import Finished, OutputEvent, ToolCallStarted
from proxy.domain.output import FinishReason, Usage
from proxy.domain.request import GenerationRequest


class Answers:
    """Gives these answers one after another; each costs 10 and 5 tokens, 2 of reasoning."""

    def __init__(self, *scripts: list[OutputEvent], reason: FinishReason | None = None) -> None:
        self.scripts = scripts
        self.reason = reason
        self.requests: list[GenerationRequest] = []
        self.closed = 0

    async def __call__(self, request: GenerationRequest) -> AsyncGenerator[OutputEvent, None]:
        script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
        self.requests.append(request)
        try:
            for event in script:
                yield event
            usage = Usage(prompt_tokens=10, completion_tokens=5, reasoning_tokens=2)
            yield Finished(reason=self._reason(request, script), usage=usage)
        finally:
            self.closed += 1

    def _reason(self, request: GenerationRequest, script: list[OutputEvent]) -> FinishReason:
        if self.reason is not None:
            return self.reason
        has_calls = any(isinstance(event, ToolCallStarted) for event in script)
        if has_calls and not request.tool_choice.is_named:
            return FinishReason.TOOL_CALLS
        return FinishReason.STOP
