"""Tools for templates that have no words for them. Called by `chat_template`.

What the family `generic` reads, see syntax.json_calls.GenericParser, is explained in the system
prompt; calls and results of the history become text that any template can show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from proxy.domain.request import Message
from proxy.domain.tools import ToolCall
from proxy.language.syntax.json_calls import GenericParser

CALL, END_OF_CALL = GenericParser.sections[0]
RESULT, END_OF_RESULT = "<function_result>", "</function_result>"
NO_SYSTEM = re.compile(r"system role (?:is )?not supported", re.IGNORECASE)


def worded(
    messages: Sequence[Message], tools: Sequence[dict[str, Any]], template: str
) -> tuple[Message, ...]:
    """The chat with tools, calls and results as text. tools: as templates get them."""
    found = list(_joined(_without_calls(messages)))
    if not tools:
        return tuple(found)
    words = _description([body["function"] for body in tools])
    has_system = "system" in template and NO_SYSTEM.search(template) is None
    roles = ("system", "developer") if has_system else ("user",)
    at = next((at for at, one in enumerate(found) if one.role in roles and not one.parts), None)
    if at is not None and (at == 0 or not has_system):
        order = (found[at].content, words) if has_system else (words, found[at].content)
        found[at] = replace(found[at], content="\n\n".join(filter(None, order)))
    else:
        found.insert(0, Message(role="system" if has_system else "user", content=words))
    return tuple(found)


def _description(functions: Sequence[dict[str, Any]]) -> str:
    listed = "\n".join(json.dumps(one, ensure_ascii=False) for one in functions)
    return (
        "You can call functions. These are their names, and JSON Schemas of their parameters:\n"
        f"{listed}\n"
        "To call one, write this with its name and arguments, once for each call, and nothing "
        "after the last one:\n"
        f'{CALL}\n{{"name": "…", "arguments": {{…}}}}\n{END_OF_CALL}\n'
        f"Its result comes in the next message, between {RESULT} and {END_OF_RESULT}. If no "
        "function is needed, answer in words."
    )


def _without_calls(messages: Sequence[Message]) -> Iterator[Message]:
    names: dict[str, str] = {}
    for message in messages:
        if message.tool_calls:
            names |= {call.id: call.name for call in message.tool_calls}
            texts = [message.content or "", *map(_written, message.tool_calls)]
            message = replace(message, content="\n".join(filter(None, texts)), tool_calls=())
        elif message.role == "tool":
            name = names.get(message.tool_call_id or "", message.name)
            head = RESULT if name is None else f"{RESULT}\n{name}:"
            content = f"{head}\n{message.content or ''}\n{END_OF_RESULT}"
            message = Message(role="user", content=content)
        yield message


def _written(call: ToolCall) -> str:
    arguments = json.dumps(json.loads(call.arguments), ensure_ascii=False)
    name = json.dumps(call.name, ensure_ascii=False)
    return f'{CALL}\n{{"name": {name}, "arguments": {arguments}}}\n{END_OF_CALL}'


def _joined(messages: Iterator[Message]) -> Iterator[Message]:
    """Results that follow each other, and what the user adds, in one message: many templates want
    the roles to alternate.
    """
    held: Message | None = None
    for message in messages:
        is_result = message.role == "user" and (message.content or "").startswith(RESULT)
        if held is not None and message.role == "user" and not message.parts:
            held = replace(held, content=f"{held.content}\n\n{message.content or ''}")
            continue
        if held is not None:
            yield held
            held = None
        if is_result:
            held = message
        else:
            yield message
    if held is not None:
        yield held
