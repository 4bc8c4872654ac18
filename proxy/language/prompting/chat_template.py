"""Messages -> prompt text, with the model's own chat template. Called by `preparation`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from proxy.domain.errors import ECHO_AT_MOST, ErrorCode, InvalidRequest
from proxy.domain.model import ModelFacts
from proxy.domain.request import ChatPrompt, Message
from proxy.domain.tools import Tool, ToolCall
from proxy.language.prompting.callers_text import Context, RenderedPrompt, protected
from proxy.language.prompting.control_tokens import NO_TOKENS, ControlTokens
from proxy.language.prompting.template_environment import compiled, variables

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


OUR_VARIABLES = frozenset({"messages", "add_generation_prompt", "bos_token", "eos_token", "tools"})
# The names that templates use for the reasoning before an answer.
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
CONTINUED_HERE = "\ue000continued here\ue001"  # characters for private use, which no message has


def rendered(
    prompt: ChatPrompt,
    facts: ModelFacts,
    tools: Sequence[Tool] = (),
    *,
    control: ControlTokens = NO_TOKENS,
    marks_at_most: int | None = None,
    takes_callers_values: bool = False,
    takes_templates: bool = False,
    thinks: bool = False,
) -> RenderedPrompt:
    """The prompt up to where the assistant's answer begins.

    Args:
        control: tokens that must stay plain text where a caller's text spells them.
        marks_at_most: the longest prompt, in characters, that is searched for these tokens.
        thinks: the model reasons before it answers.

    Raises:
        InvalidRequest: the model has no chat template, its template refuses the messages, or does
            not use one of the prompt's values.
        TooLongToMark: see `callers_text.protected`.
    """
    template = _template(prompt, facts, tools, takes_templates)
    prompt = disable_thinking(prompt, variables(template), thinks=thinks)
    _check_values(prompt, template, takes_callers_values)
    _check_tools(prompt, tools, template)
    write = partial(_written, prompt, facts, template)
    callers = _callers_context(prompt, tools, template)
    return protected(write, callers, control, at_most=marks_at_most)


def _written(prompt: ChatPrompt, facts: ModelFacts, template: str, callers: Context) -> str:
    """The text that the template makes of the variables from `_callers_context`."""
    try:
        text = compiled(template).render(
            **callers,
            add_generation_prompt=prompt.adds_generation_prompt,
            bos_token=facts.bos_token,
            eos_token=facts.eos_token,
        )
    except MemoryError:
        raise  # the sandbox's limit, which it reports
    except Exception as error:  # a template is a program: it may raise anything
        raise _refused(prompt, error) from error
    return _up_to_continuation(text) if prompt.continues_last else text


def _callers_context(prompt: ChatPrompt, tools: Sequence[Tool], template: str) -> Context:
    """The template's variables that contain callers' text."""
    messages = [_as_template_sees(message, template) for message in prompt.messages]
    if prompt.continues_last:
        messages[-1]["content"] = (messages[-1]["content"] or "") + CONTINUED_HERE
    return {
        **prompt.callers_values,
        **prompt.template_values,
        "messages": messages,
        "tools": [tool_body(tool) for tool in tools] or None,
    }


def _refused(prompt: ChatPrompt, error: Exception) -> InvalidRequest:
    """The error for a template that failed; its own message may be long."""
    is_callers = prompt.template is not None
    whose = "given" if is_callers else "model's"
    return InvalidRequest(
        f"The {whose} chat template refused the messages: {str(error)[:ECHO_AT_MOST]}",
        code=ErrorCode.INVALID_MESSAGES,
        param="chat_template" if is_callers else "messages",
    )


def _template(
    prompt: ChatPrompt, facts: ModelFacts, tools: Sequence[Tool], takes_templates: bool
) -> str:
    """The caller's template if the model accepts one, else the model's own.

    A model may have a second template for tools. It is used for requests with tools, and for calls
    and results in the history that the usual template cannot render.
    """
    if prompt.template is not None:
        if not takes_templates:
            raise _unsupported("This model does not accept 'chat_template'.", "chat_template")
        return prompt.template
    usual, of_tools = facts.chat_template, facts.tool_template
    if of_tools is not None and (tools or (usual and _unsupported_history(prompt.messages, usual))):
        return of_tools
    if usual is None:
        raise InvalidRequest(
            "This model has no chat template. Use /v1/completions with a prompt.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param="messages",
        )
    return usual


def _up_to_continuation(text: str) -> str:
    """Cuts off what the template wrote after the last message."""
    start, mark, _ = text.rpartition(CONTINUED_HERE)
    if not mark:
        raise _unsupported(
            "The model's chat template does not write the last message, so it cannot be continued.",
            "continue_final_message",
        )
    return start


def _check_values(prompt: ChatPrompt, template: str, takes_callers_values: bool) -> None:
    """Refuses a value that the template does not read: it would be ignored."""
    if prompt.callers_values and not takes_callers_values:
        raise _unsupported(
            "This model does not accept 'chat_template_kwargs'.", "chat_template_kwargs"
        )
    used = variables(template)
    for name in prompt.callers_values:
        path = f"chat_template_kwargs.{name}"
        if name in OUR_VARIABLES or name in prompt.template_values:
            raise _unsupported(f"{path!r} cannot be set by a request.", path)
        if name not in used:
            raise _unsupported(f"The model's chat template does not use {path!r}.", path)
    for name in prompt.template_values:
        if name not in used:
            raise _unsupported(f"The model's chat template does not use {name!r}.", name)


def _unsupported(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code=ErrorCode.UNSUPPORTED_PARAMETER, param=param[:ECHO_AT_MOST])


def _check_tools(prompt: ChatPrompt, tools: Sequence[Tool], template: str) -> None:
    """Refuses tools, calls and results that the template cannot render: it would omit them."""
    if tools and "tools" not in variables(template):
        raise _unsupported("The model's chat template does not use 'tools'.", "tools")
    if (refusal := _unsupported_history(prompt.messages, template)) is not None:
        raise refusal


def _unsupported_history(messages: Sequence[Message], template: str) -> InvalidRequest | None:
    """The error for the first tool call or result that the template cannot render; None if it can
    render all.
    """
    for at, message in enumerate(messages):
        if message.tool_calls and "tool_calls" not in template:
            path = f"messages[{at}].tool_calls"
            return _unsupported(f"The model's chat template does not use {path!r}.", path)
        if message.role == "tool" and "tool" not in template:
            path = f"messages[{at}].role"
            return _unsupported("The model's chat template has no role 'tool'.", path)
    return None


def tool_body(tool: Tool) -> dict[str, Any]:
    """A tool in the form that callers send and templates expect."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": {**function, **tool.returns}}


def _as_template_sees(message: Message, template: str) -> dict[str, Any]:
    """Renames the role `developer` to `system` for templates that do not know it."""
    role = message.role
    if role == "developer" and "developer" not in template:
        role = "system"
    seen: dict[str, Any] = {"role": role, "content": message.content}
    if message.name is not None:
        seen["name"] = message.name
    if message.tool_call_id is not None:
        seen["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        seen["tool_calls"] = [_call_body(call) for call in message.tool_calls]
    if message.reasoning is not None:
        seen |= dict.fromkeys(REASONING_KEYS, message.reasoning)
    return seen


def _call_body(call: ToolCall) -> dict[str, Any]:
    """A call with its arguments as values, since templates write them with `tojson`."""
    function = {"name": call.name, "arguments": json.loads(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}
