"""How messages are written for a chat template, where templates differ. Called by `chat_template`.

`template_probes` finds the forms of a template by rendering it. No list has names of models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal

from proxy.domain.request import Message
from proxy.domain.tools import Tool, ToolCall

# The names that templates use for the reasoning before an answer.
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
BETWEEN = "\n\n"  # texts of messages that become one
SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
INSTRUCTIONS = ("system", "developer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """What one template wants. The defaults are the most faithful forms.

    content: a list of parts for templates that write no plain string.
    no_tools: the variable `tools` of a chat without any.
    knows_developer: else its messages become those of the system.
    system: templates without a system role get its text as the user's.
    systems, neighbors: several system messages at the beginning; others of one role in a row.
    late_system: a system message behind the first turn stays at its place in every form, because
    a prompt that changes at its beginning is in no cache.
    after_result: what the user says directly behind a tool's result.
    no_content: of an answer that is calls alone. ids: what Kimi K2 and Mistral want of a call's id.
    arguments: `texts` is an object whose values are strings, JSON where they were none.
    said: text next to calls; `before` makes it a message of its own, `dropped` leaves it to the
    template, which omits it. thought: reasoning next to text and calls; in the form `joined` the
    text is the end of the reasoning. parallel: several calls of one answer.
    tools: absent descriptions are left out, or empty. prompts_tools: tools are shown only next to
    a system message, so that there is always one.
    """

    content: Literal["text", "parts"] = "text"
    no_tools: Literal["null", "empty"] = "null"
    knows_developer: bool = False
    system: Literal["system", "user"] = "system"
    systems: Literal["kept", "joined"] = "kept"
    late_system: Literal["kept", "user"] = "kept"
    neighbors: Literal["kept", "joined"] = "kept"
    after_result: Literal["kept", "joined"] = "kept"
    no_content: Literal["null", "omitted", "empty"] = "null"
    arguments: Literal["object", "text", "texts"] = "object"
    nulls: Literal["null", "text"] = "null"
    ids: Literal["given", "named", "short"] = "given"
    said: Literal["beside", "before", "dropped"] = "beside"
    thought: Literal["beside", "joined", "dropped"] = "beside"
    parallel: Literal["together", "apart"] = "together"
    tools: Literal["bare", "described", "typed"] = "bare"
    prompts_tools: bool = False

    @property
    def without_tools(self) -> list[dict[str, Any]] | None:
        """The variable `tools` of a chat without any."""
        return None if self.no_tools == "null" else []


def shaped(
    messages: Sequence[Message], forms: Forms, *, has_tools: bool = False
) -> list[dict[str, Any]]:
    """The messages as the template gets them. Takes linear time."""
    turns: Iterable[Message] = _instructed(messages, forms, has_tools)
    if forms.neighbors == "joined":
        turns = _joined(turns)
    if forms.after_result == "joined":
        turns = _joined_to_results(turns)
    if forms.parallel == "apart":
        turns = _apart(list(turns))
    if forms.said == "before" or forms.thought != "beside":
        turns = chain.from_iterable(_split(message, forms) for message in turns)
    called: dict[str, ToolCall] = {}
    return [_seen(message, forms, called) for message in turns]


def tool_body(tool: Tool, forms: Forms = Forms()) -> dict[str, Any]:
    """A tool in the form that callers send and templates expect."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None or forms.tools != "bare":
        function["description"] = tool.description or ""
    parameters = tool.parameters or {"type": "object", "properties": {}}
    function["parameters"] = _typed(parameters) if forms.tools == "typed" else parameters
    return {"type": "function", "function": {**function, **tool.returns}}


def _typed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """With what templates read of each property without looking whether it is there."""
    found = {"type": "object", "properties": {}, "required": [], **parameters}
    if isinstance(found["properties"], dict):
        found["properties"] = {
            name: {"type": "any", "description": "", **one} if isinstance(one, dict) else one
            for name, one in found["properties"].items()
        }
    return found


def _instructed(messages: Sequence[Message], forms: Forms, has_tools: bool) -> Sequence[Message]:
    """Brings the messages of system and developer into form."""
    at = 0
    while at < len(messages) and messages[at].role in INSTRUCTIONS:
        at += 1
    leading = [_renamed(message, forms) for message in messages[:at]]
    if has_tools and forms.prompts_tools and not leading:
        leading = [Message(role="system", content="")]
    if forms.systems == "joined" and leading:
        leading = [_merged(leading)]
    if forms.system == "user":
        leading = [replace(message, role="user") for message in leading]
    turns, roles = messages[at:], set(map(attrgetter("role"), messages[at:]))
    if not roles.isdisjoint(INSTRUCTIONS):
        turns = [_late(one, forms) if one.role in INSTRUCTIONS else one for one in turns]
    return [*leading, *turns]


def _late(message: Message, forms: Forms) -> Message:
    if "user" in (forms.late_system, forms.system):
        return replace(message, role="user")
    return _renamed(message, forms)


def _renamed(message: Message, forms: Forms) -> Message:
    if message.role == "developer" and not forms.knows_developer:
        return replace(message, role="system")
    return message


def _joined(messages: Iterable[Message]) -> Iterator[Message]:
    """Each run of the user's messages, or of answers, as one."""
    for role, run in groupby(messages, key=attrgetter("role")):
        if role in ("user", "assistant"):
            yield _merged(list(run))
        else:
            yield from run


def _joined_to_results(messages: Iterable[Message]) -> Iterator[Message]:
    """The user's words directly behind a result, at the end of that result."""
    run: list[Message] = []
    for message in messages:
        if run and (message.role != "user" or message.parts):
            yield _merged(run)
            run = []
        if run or message.role == "tool":
            run.append(message)
        else:
            yield message
    if run:
        yield _merged(run)


def _merged(run: Sequence[Message]) -> Message:
    """One message of several, with the role and the name of the first."""
    if len(run) == 1:
        return run[0]
    parts: tuple[str | None, ...] = ()
    if any(message.parts for message in run):
        parts = tuple(chain.from_iterable(one.parts or (one.content or "",) for one in run))
    contents = [message.content for message in run if message.content]
    thoughts = [message.reasoning for message in run if message.reasoning]
    return replace(
        run[0],
        content=BETWEEN.join(contents) if contents else run[0].content,
        parts=parts,
        reasoning=BETWEEN.join(thoughts) or None,
        tool_calls=tuple(chain.from_iterable(message.tool_calls for message in run)),
    )


def _apart(messages: Sequence[Message]) -> Iterator[Message]:
    """Several calls of an answer as one answer each, directly before its result."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if len(message.tool_calls) < 2:
            yield message
            continue
        results: dict[str | None, Message] = {}
        while at < len(messages) and messages[at].role == "tool":
            results[messages[at].tool_call_id] = messages[at]
            at += 1
        for number, call in enumerate(message.tool_calls):
            if number:
                message = Message(role="assistant", content=None)
            yield replace(message, tool_calls=(call,))
            if (result := results.pop(call.id, None)) is not None:
                yield result
        yield from results.values()


def _split(message: Message, forms: Forms) -> Iterator[Message]:
    """Text that the template would not show next to the calls as a message of its own."""
    has_both = bool(message.tool_calls and message.content)
    if has_both and message.reasoning and forms.thought != "beside":
        if forms.thought == "joined":
            thought = BETWEEN.join((message.reasoning, message.content or ""))
            yield replace(message, content=None, reasoning=thought)
            return
        message = replace(message, reasoning=None)
    if has_both and forms.said == "before":
        yield replace(message, tool_calls=())
        message = Message(role="assistant", content=None, tool_calls=message.tool_calls)
    yield message


def _seen(message: Message, forms: Forms, called: dict[str, ToolCall]) -> dict[str, Any]:
    """called: the calls before this message, by the ids that the caller gave; it adds its own."""
    content, calls = message.content, message.tool_calls
    seen: dict[str, Any] = {"role": message.role, "content": content}
    if message.parts or (forms.content == "parts" and content is not None):
        seen["content"] = [
            {"type": "image"} if part is None else {"type": "text", "text": part}
            for part in message.parts or (content,)
        ]
    elif content is None:
        if not calls or forms.no_content == "empty":
            seen["content"] = ""
        elif forms.no_content == "omitted":
            del seen["content"]
    if message.name is not None:
        seen["name"] = message.name
    if (given := message.tool_call_id) is not None:
        seen["tool_call_id"] = given
        if (call := called.get(given)) is not None:
            seen["tool_call_id"] = call.id
            seen.setdefault("name", call.name)
    if calls:
        seen["tool_calls"] = [_call_body(call, forms, called) for call in calls]
    if message.reasoning is not None:
        seen |= dict.fromkeys(REASONING_KEYS, message.reasoning)
    return seen


def _call_body(call: ToolCall, forms: Forms, called: dict[str, ToolCall]) -> dict[str, Any]:
    key, number = call.id, len(called)
    if forms.ids == "short" and SHORT_ID.fullmatch(key) is None:
        call = replace(call, id=sha256(key.encode()).hexdigest()[:9])
    elif forms.ids == "named" and not key.startswith(f"functions.{call.name}:"):
        call = replace(call, id=f"functions.{call.name}:{number}")
    called[key] = call
    arguments: Any = call.arguments
    if forms.arguments != "text":
        arguments = json.loads(arguments)
    if forms.arguments == "texts" and isinstance(arguments, dict):
        arguments = {name: _as_text(value) for name, value in arguments.items()}
    elif forms.nulls == "text" and "null" in call.arguments:
        arguments = _spelled(arguments)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _spelled(value: Any) -> Any:
    """With a word in place of each null."""
    if isinstance(value, dict):
        return {name: _spelled(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_spelled(one) for one in value]
    return "null" if value is None else value
