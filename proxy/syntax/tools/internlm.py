"""InternLM 2: `<|action_start|><|plugin|>{"name": …, "parameters": {…}}<|action_end|>`."""

from __future__ import annotations

from triton_openai.proxy.syntax.parsing.reader import Steps
from triton_openai.proxy.syntax.tools.call_objects import CallObjects


class InternLMParser(CallObjects):
    """One object an action."""

    sections = (("<|action_start|>", "<|action_end|>"),)
    inner_marks = ("<|plugin|>",)

    def _lead_in(self) -> Steps[None]:
        yield from self._reader.space()
        yield from self._reader.accept("<|plugin|>")
        yield from self._reader.space()
