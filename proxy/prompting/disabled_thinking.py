"""`reasoning_effort: none`, as chat templates of models that think say it. Called by prompting."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.domain.request import ChatPrompt

EFFORT, NONE = "reasoning_effort", "none"
# Qwen3's, GLM's and Nemotron's name of it; DeepSeek V3.1's, Kimi's and Granite's.
SWITCHES = ("enable_thinking", "thinking")


def told(prompt: ChatPrompt, variables: Collection[str], *, thinks: bool) -> ChatPrompt:
    """With values for the template that reads these variables, where it shall keep a model from
    thinking. Switches that the caller sets by name stay as they are.

    Raises:
        InvalidRequest: the model thinks, and its template cannot be told.
    """
    values = prompt.template_values
    if values.get(EFFORT) != NONE:
        return prompt
    read = [name for name in (EFFORT, *SWITCHES) if name in variables]
    if thinks and not read:
        raise InvalidRequest(
            f"The model thinks, and its chat template has no use for {EFFORT!r} to keep it from "
            "that. Leave it out; 'thinking_token_budget' limits the reasoning.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param=EFFORT,
        )
    kept = {name: value for name, value in values.items() if name != EFFORT or EFFORT in read}
    off = dict.fromkeys(set(SWITCHES).intersection(read) - prompt.callers_values.keys(), False)
    return replace(prompt, template_values=kept | off)
