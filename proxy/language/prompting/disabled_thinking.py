"""`reasoning_effort: none` in the words of the model's chat template. Called by `chat_template`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.request import ChatPrompt

EFFORT, NONE = "reasoning_effort", "none"
# The variable's name for Qwen3, GLM and Nemotron; for DeepSeek V3.1, Kimi and Granite.
SWITCHES = ("enable_thinking", "thinking")


def disable_thinking(prompt: ChatPrompt, variables: Collection[str], *, thinks: bool) -> ChatPrompt:
    """The prompt, with the values that make its template switch the reasoning off if the caller
    wants that. Switches that the caller has set by name keep their values.

    Args:
        variables: those that the template reads.
        thinks: the model has a reasoning parser.

    Raises:
        InvalidRequest: the model reasons, and its template cannot switch that off.
    """
    values = prompt.template_values
    if values.get(EFFORT) != NONE:
        return prompt
    read = [name for name in (EFFORT, *SWITCHES) if name in variables]
    if thinks and not read:
        raise InvalidRequest(
            f"The model's chat template cannot switch its reasoning off, so {EFFORT!r} cannot be "
            f"{NONE!r}. Leave it out; 'thinking_token_budget' limits the reasoning.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param=EFFORT,
        )
    kept = {name: value for name, value in values.items() if name != EFFORT or EFFORT in read}
    off = dict.fromkeys(set(SWITCHES).intersection(read) - prompt.callers_values.keys(), False)
    return replace(prompt, template_values=kept | off)
