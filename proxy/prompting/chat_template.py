"""Messages -> prompt text, with the model's own Jinja chat template, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from triton_openai.proxy.domain.errors import ECHO_AT_MOST, ErrorCode, InvalidRequest
from triton_openai.proxy.domain.model import ModelFacts
from triton_openai.proxy.domain.request import ChatPrompt, Message
from triton_openai.proxy.domain.tools import Tool, ToolCall
from triton_openai.proxy.prompting import disabled_thinking
from triton_openai.proxy.prompting.callers_text import Context, RenderedPrompt, protected
from triton_openai.proxy.prompting.control_tokens import NO_TOKENS, ControlTokens

OUR_VARIABLES = frozenset({"messages", "add_generation_prompt", "bos_token", "eos_token", "tools"})
# What templates call the thoughts before an answer.
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
CONTINUED_HERE = "\ue000continued here\ue001"  # private use: no message has it


def render(
    prompt: ChatPrompt,
    facts: ModelFacts,
    tools: Sequence[Tool] = (),
    *,
    takes_callers_values: bool = False,
    takes_templates: bool = False,
    thinks: bool = False,
) -> str:
    """The text of `rendered`, without a look at control tokens."""
    return rendered(
        prompt,
        facts,
        tools,
        takes_callers_values=takes_callers_values,
        takes_templates=takes_templates,
        thinks=thinks,
    ).text


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
    """The prompt up to where the assistant's answer begins. thinks: the model reasons before it.

    control: tokens that are plain text where a caller's text spells them. marks_at_most: characters
    of a prompt that may be looked through for them.

    Raises:
        InvalidRequest: the model has no chat template, its template refuses the messages, or has
            no use for one of the prompt's values.
        LongToMark: see `callers_text.protected`.
    """
    template = _template(prompt, facts, tools, takes_templates)
    prompt = disabled_thinking.told(prompt, _variables(template), thinks=thinks)
    _check_values(prompt, template, takes_callers_values)
    _check_tools(prompt, tools, template)
    write = partial(_written, prompt, facts, template)
    callers = _callers_context(prompt, tools, template)
    return protected(write, callers, control, at_most=marks_at_most)


def _written(prompt: ChatPrompt, facts: ModelFacts, template: str, callers: Context) -> str:
    """The template's text with these values of `_callers_context`."""
    try:
        text = _compiled(template).render(
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
    """The variables of the template whose values hold callers' text."""
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
    """By a template; its own words may be long."""
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
    """The caller's, where the model takes such, or the model's own.

    One that the model has for tools is taken for tools, and for calls and results that its usual
    one has no words for.
    """
    if prompt.template is not None:
        if not takes_templates:
            raise _unsupported("This model takes no 'chat_template'.", "chat_template")
        return prompt.template
    usual, of_tools = facts.chat_template, facts.tool_template
    if of_tools is not None and (tools or (usual and _untold(prompt.messages, usual))):
        return of_tools
    if usual is None:
        raise InvalidRequest(
            "This model has no chat template. Use /v1/completions with a prompt.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param="messages",
        )
    return usual


def _up_to_continuation(text: str) -> str:
    """What the template wrote after the last message is cut off."""
    start, mark, _ = text.rpartition(CONTINUED_HERE)
    if not mark:
        raise _unsupported(
            "The model's chat template does not write the last message, so it cannot be continued.",
            "continue_final_message",
        )
    return start


def _check_values(prompt: ChatPrompt, template: str, takes_callers_values: bool) -> None:
    """A value that the template does not use would be ignored, so it is refused by name."""
    if prompt.callers_values and not takes_callers_values:
        raise _unsupported("This model takes no 'chat_template_kwargs'.", "chat_template_kwargs")
    used = _variables(template)
    for name in prompt.callers_values:
        path = f"chat_template_kwargs.{name}"
        if name in OUR_VARIABLES or name in prompt.template_values:
            raise _unsupported(f"{path!r} is not the caller's to set.", path)
        if name not in used:
            raise _unsupported(f"The model's chat template has no use for {path!r}.", path)
    for name in prompt.template_values:
        if name not in used:
            raise _unsupported(f"The model's chat template has no use for {name!r}.", name)


def _unsupported(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code=ErrorCode.UNSUPPORTED_PARAMETER, param=param[:ECHO_AT_MOST])


def _check_tools(prompt: ChatPrompt, tools: Sequence[Tool], template: str) -> None:
    """A template that has no words for tools, calls or their results would leave them out."""
    if tools and "tools" not in _variables(template):
        raise _unsupported("The model's chat template has no use for 'tools'.", "tools")
    if (refusal := _untold(prompt.messages, template)) is not None:
        raise refusal


def _untold(messages: Sequence[Message], template: str) -> InvalidRequest | None:
    """What is to be said of the first call or result that a template has no words for."""
    for at, message in enumerate(messages):
        if message.tool_calls and "tool_calls" not in template:
            path = f"messages[{at}].tool_calls"
            return _unsupported(f"The model's chat template has no use for {path!r}.", path)
        if message.role == "tool" and "tool" not in template:
            path = f"messages[{at}].role"
            return _unsupported("The model's chat template has no role 'tool'.", path)
    return None


def tool_body(tool: Tool) -> dict[str, Any]:
    """A tool as templates are written for, and as callers give it."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": {**function, **tool.returns}}


def _as_template_sees(message: Message, template: str) -> dict[str, Any]:
    """A template that does not know the newer role `developer` gets it as `system`."""
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
    """Arguments as values: templates write them with `tojson`."""
    function = {"name": call.name, "arguments": json.loads(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


@lru_cache(maxsize=64)
def _compiled(template: str) -> jinja2.Template:
    """In the environment that Hugging Face's templates are written for."""
    compiled = _environment().from_string(template)
    compiled.globals = dict(compiled.globals)  # a ChainMap, which every rendering would copy
    return compiled


@lru_cache(maxsize=64)
def _variables(template: str) -> frozenset[str]:
    """Names that the template reads and neither it nor its environment sets; none where it is no
    template.
    """
    environment = _environment()
    try:
        read = meta.find_undeclared_variables(environment.parse(template))
        return frozenset(read - environment.globals.keys())
    except (jinja2.TemplateError, RecursionError):
        return frozenset()  # rendering says what is wrong


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what is learned in training: as it stands."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it an instance's

    def parse(self, parser: Parser) -> nodes.Node:
        """What is set inside is not seen outside, as in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """transformers' filter. Jinja's own escapes HTML, which prompts must not have."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
