"""Messages -> prompt text, with the model's own chat template, in a sandboxed Jinja environment as
transformers sets it up. Called by `prompt_writer`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from proxy.domain.errors import ECHO_AT_MOST, ErrorCode, InvalidRequest, unsupported
from proxy.domain.model import ModelFacts
from proxy.domain.request import ChatPrompt, Message
from proxy.domain.tools import Tool, ToolCall
from proxy.language.prompting.callers_text import Context, RenderedPrompt, protected
from proxy.language.prompting.control_tokens import NO_TOKENS, ControlTokens
from proxy.language.prompting.generic_tools import with_written_calls, worded
from proxy.language.prompting.template_forms import Forms, shaped, tool_body
from proxy.language.prompting.template_probes import found_forms
from proxy.language.structured.escaped_grammar import IN_JSON, IN_MARKUP, Escapes
from proxy.language.syntax.call_syntax import INPUT, INPUT_SCHEMA
from proxy.language.syntax.families import reasoning_family, tool_family

EFFORT, VERBOSITY, NONE = "reasoning_effort", "verbosity", "none"
# The variable's name for Qwen3, GLM and Nemotron; for DeepSeek V3.1, Kimi and Granite.
SWITCHES = ("enable_thinking", "thinking")
OUR_VARIABLES = frozenset({"messages", "add_generation_prompt", "bos_token", "eos_token", "tools"})
CONTINUED_HERE = "\ue000continued here\ue001"  # characters for private use, which no message has

_SYNTAXES = {"lark": "Lark grammar", "regex": "regular expression"}
_IN_MARKUP = f"In `{INPUT}`, write < as &lt; and & as &amp;."


def rendered(
    prompt: ChatPrompt,
    facts: ModelFacts,
    tools: Sequence[Tool] = (),
    *,
    control: ControlTokens = NO_TOKENS,
    marks_at_most: int | None = None,
    takes_callers_values: bool = False,
    takes_templates: bool = False,
    reasoning: str | None = None,
    words_tools: bool = False,
    escapes: Escapes = IN_JSON,
    family: str | None = None,
    known_forms: Mapping[str, Forms] | None = None,
) -> RenderedPrompt:
    """The prompt up to where the assistant's answer begins.

    A model may have a second template for tools. It is used for requests with tools, and for calls
    and results in the history that the usual template cannot render.

    Args:
        control: tokens that must stay plain text where a caller's text spells them.
        marks_at_most: the longest prompt, in characters, that is searched for these tokens.
        reasoning: the family of the model's reasoning; None where it does not reason.
        words_tools: the model's template has no words for tools, see generic_tools.
        escapes: how inputs of custom tools are written, see _as_function.
        family: of the model's tool calls, for templates that have no place for calls.
        known_forms: by template, those that need not be found again.

    Raises:
        InvalidRequest: the model has no chat template, its template refuses the messages, or does
            not use one of the prompt's values, or the tools, calls or results: it would omit them.
        TooLongToMark: see `callers_text.protected`.
    """
    template = prompt.template
    if template is not None and not takes_templates:
        raise _unsupported("This model does not accept 'chat_template'.", "chat_template")
    if template is None:
        template, of_tools = facts.chat_template, facts.tool_template
        if of_tools is not None and (
            tools or (template and _unsupported_history(prompt.messages, template, prompt))
        ):
            template = of_tools
    if template is None:
        raise unsupported(
            "This model has no chat template: it only completes prompts.", param="messages"
        )
    values = prompt.template_values
    if values.get(EFFORT) == NONE:
        values = _without_thinking(prompt, variables(template), thinks=reasoning is not None)
    if values or prompt.callers_values:
        _check_values(prompt.callers_values, values, template, takes_callers_values)
    forms = (known_forms or {}).get(template) or forms_of(template)
    has_words = "tools" in variables(template)
    turns = _with_functions(prompt.messages, tools, escapes)
    tools = [_as_function(tool, escapes) for tool in tools]
    # a caller's template has its own words; without tools, the model's may show calls as it learned
    shows = has_words if tools else "tool_calls" in template
    if words_tools and not (shows and (prompt.template is not None or not tools)):
        turns, tools = worded(turns, list(map(tool_body, tools))), ()
    elif family is not None and prompt.template is None and "tool_calls" not in template:
        turns = with_written_calls(turns, tool_family(family).call_syntax)
    if tools and not has_words:
        raise _unsupported("The model's chat template does not use 'tools'.", "tools")
    if (refusal := _unsupported_history(turns, template, prompt)) is not None:
        raise refusal
    messages = shaped(turns, forms, has_tools=bool(tools))
    if prompt.continues_last:
        last = messages[-1]
        if isinstance(content := last.get("content"), list):
            content[-1]["text"] += CONTINUED_HERE
        else:
            last["content"] = (content or "") + CONTINUED_HERE
    callers: Context = {
        **prompt.callers_values,
        **values,
        "messages": messages,
        "tools": [tool_body(tool, forms) for tool in tools] or forms.without_tools,
    }
    write = partial(_written, prompt, facts, template)
    found = protected(write, callers, control, at_most=marks_at_most)
    if reasoning is not None and prompt.messages[-1].role == "tool":
        asked = shaped((Message(role="user", content="?"),), forms)
        with suppress(InvalidRequest):
            usual = write({**callers, "messages": asked, "tools": forms.without_tools})
            is_left_out = reasoning_family(reasoning).is_left_out(found.text, usual)
            found = replace(found, leaves_thought_out=is_left_out)
    return found


def _as_function(tool: Tool, escapes: Escapes) -> Tool:
    """A function whose one argument is the input. escapes: how an input is written that must
    conform to a grammar.
    """
    if not tool.is_custom:
        return tool
    words = [tool.description or ""]
    if (grammar := tool.grammar) is not None:
        words.append(
            f"`{INPUT}` is text that conforms to this {_SYNTAXES[grammar.syntax]}:\n"
            f"{grammar.definition.strip()}"
        )
        words.append(_IN_MARKUP if escapes == IN_MARKUP else "")
    description = "\n\n".join(filter(None, words))
    return Tool(name=tool.name, description=description or None, parameters=INPUT_SCHEMA)


def _with_functions(
    messages: Sequence[Message], tools: Sequence[Tool], escapes: Escapes
) -> Sequence[Message]:
    """The messages with calls of custom tools as calls of these functions."""
    if not any(call.is_custom for message in messages for call in message.tool_calls):
        return messages
    escaped = {tool.name for tool in tools if tool.grammar and escapes == IN_MARKUP}

    def as_call(call: ToolCall) -> ToolCall:
        if not call.is_custom:
            return call
        text = escapes.text(call.arguments) if call.name in escaped else call.arguments
        arguments = json.dumps({INPUT: text}, ensure_ascii=False)
        return replace(call, arguments=arguments, is_custom=False)

    return [
        replace(message, tool_calls=tuple(map(as_call, message.tool_calls))) for message in messages
    ]


def _without_thinking(prompt: ChatPrompt, read: Collection[str], *, thinks: bool) -> dict[str, Any]:
    """The values that make the template switch the reasoning off. Switches that the caller has set
    by name keep their values.

    Args:
        read: the variables that the template reads.
        thinks: the model has a reasoning parser.

    Raises:
        InvalidRequest: the model reasons, and its template cannot switch that off.
    """
    switches = [name for name in SWITCHES if name in read]
    if thinks and not switches and EFFORT not in read:
        raise unsupported(
            f"The model's chat template cannot switch its reasoning off, as {EFFORT!r} asks. Leave "
            "it out, or limit the tokens of the reasoning.",
            param=EFFORT,
        )
    values = dict(prompt.template_values)
    if EFFORT not in read:
        del values[EFFORT]
    return values | {name: False for name in switches if name not in prompt.callers_values}


def _check_values(
    callers: Mapping[str, Any], values: Mapping[str, Any], template: str, takes_callers_values: bool
) -> None:
    """Refuses a value that the template does not read: it would be ignored."""
    if callers and not takes_callers_values:
        raise _unsupported(
            "This model does not accept 'chat_template_kwargs'.", "chat_template_kwargs"
        )
    used = variables(template)
    for name in callers:
        path = f"chat_template_kwargs.{name}"
        if name in OUR_VARIABLES or name in values:
            raise _unsupported(f"{path!r} cannot be set by a request.", path)
        if name not in used:
            raise _unsupported(f"The model's chat template does not use {path!r}.", path)
    for name in values:
        if name not in used:
            raise _unsupported(f"The model's chat template does not use {name!r}.", name)


def _written(prompt: ChatPrompt, facts: ModelFacts, template: str, callers: Context) -> str:
    """The text that the template makes of the variables that contain callers' text."""
    try:
        program = compiled(template)
    except Exception as error:
        raise _refused(prompt, "the messages", error) from error

    def render(messages: Sequence[Mapping[str, Any]]) -> str:
        return program.render(
            **{**callers, "messages": messages},
            add_generation_prompt=prompt.adds_generation_prompt,
            bos_token=facts.bos_token,
            eos_token=facts.eos_token,
        )

    def fails(count: int) -> bool:
        try:
            render(callers["messages"][:count])
        except MemoryError:
            raise
        except Exception:
            return True
        return False

    messages = callers["messages"]
    try:
        text = render(messages)
    except MemoryError:
        raise  # the sandbox's limit, which it reports
    except Exception as error:  # a template is a program: it may raise anything
        at = bisect_left(range(1, len(messages)), True, key=fails)
        where = f"a message of role {messages[at]['role']!r}"
        if len(messages) == len(prompt.messages):
            where = f"messages[{at}] (role {messages[at]['role']!r})"
        raise _refused(prompt, where, error) from error
    return _up_to_continuation(text) if prompt.continues_last else text


def _refused(prompt: ChatPrompt, where: str, error: Exception) -> InvalidRequest:
    """The error for a template that failed; its own message may be long."""
    is_callers = prompt.template is not None
    whose = "given" if is_callers else "model's"
    return InvalidRequest(
        f"The {whose} chat template refused {where}: {str(error)[:ECHO_AT_MOST]}",
        code=ErrorCode.INVALID_MESSAGES,
        param="chat_template" if is_callers else "messages",
    )


def _up_to_continuation(text: str) -> str:
    """Cuts off what the template wrote after the last message."""
    start, mark, _ = text.rpartition(CONTINUED_HERE)
    if not mark:
        raise _unsupported(
            "The model's chat template does not write the last message, so it cannot be continued.",
            "continue_final_message",
        )
    return start


def _unsupported(message: str, param: str) -> InvalidRequest:
    return unsupported(message, param=param[:ECHO_AT_MOST])


def _unsupported_history(
    messages: Sequence[Message], template: str, prompt: ChatPrompt
) -> InvalidRequest | None:
    """The error for the first tool call, result or image that the template cannot render; None if
    it can render all. messages: the prompt's, in words where the template has none for tools.
    """
    for at, message in enumerate(messages):
        if message.tool_calls and "tool_calls" not in template:
            path = f"messages[{at}].tool_calls"
            return _unsupported(f"The model's chat template does not use {path!r}.", path)
        if message.role == "tool" and "tool" not in template:
            path = f"messages[{at}].role"
            return _unsupported("The model's chat template has no role 'tool'.", path)
        if message.parts and "image" not in template:
            path = prompt.place_of_image()
            return _unsupported("The model's chat template has no place for an image.", path)
    return None


def prepare(facts: ModelFacts) -> None:
    """Compiles the model's templates. Call it in a thread: a long one takes 30 ms."""
    for template in filter(None, (facts.chat_template, facts.tool_template)):
        with suppress(Exception):  # rendering reports the mistake
            compiled(template)
            variables(template)


@lru_cache(maxsize=64)
def compiled(template: str) -> jinja2.Template:
    found = _environment().from_string(template)
    found.globals = dict(found.globals)  # each rendering would copy a ChainMap slowly
    return found


@lru_cache(maxsize=64)
def forms_of(template: str) -> Forms:
    """What the template wants; the usual if it cannot be compiled."""
    try:
        render = compiled(template).render
    except Exception:  # rendering reports the mistake
        return Forms()

    def prompt(messages: list[dict[str, Any]], tools: object) -> str:
        return render(
            messages=messages, tools=tools, add_generation_prompt=True, bos_token="", eos_token=""
        )

    return found_forms(
        prompt, knows_developer="developer" in template, shows_calls="tool_calls" in template
    )


@lru_cache(maxsize=64)
def variables(template: str) -> frozenset[str]:
    """The names that the template reads, but neither it nor its environment sets; none if it is not
    a valid template.
    """
    environment = _environment()
    try:
        read = meta.find_undeclared_variables(environment.parse(template))
        return frozenset(read - environment.globals.keys())
    except (jinja2.TemplateError, RecursionError):
        return frozenset()  # rendering reports the mistake


def read_by(facts: ModelFacts) -> frozenset[str]:
    """The variables that all templates of the model read."""
    found = [variables(one) for one in (facts.chat_template, facts.tool_template) if one]
    return frozenset.intersection(*found) if found else frozenset()


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks text for training; here it has no effect."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it an instance's

    def parse(self, parser: Parser) -> nodes.Node:
        """Variables that are set inside are not visible outside, as in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Dict:
    """Makes dictionaries, but has no attributes of the class `dict`, as in transformers 5.24."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """Refuses names that begin with an underscore, as in transformers 5.24."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # the first argument may be called `self`
        given = dict(*args[1:], **kwargs)
        for name in given:
            _check_name(name)
        Namespace.__init__(args[0], given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot have an attribute {name!r}")


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["dict"] = _Dict()
    environment.globals["namespace"] = _Namespace
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
    """transformers' filter. Jinja's own filter escapes HTML, which would spoil prompts."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_listed,
    )


def _listed(value: object) -> list[Any]:
    """What jinja2's filters, such as `map`, make of a list."""
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
