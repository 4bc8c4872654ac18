"""Tools and calls for templates that have no words for them. Called by `chat_template`.

What the family `generic` reads, see syntax.json_calls.GenericParser, is explained in the system
prompt; calls and results of the history become text that any template can show.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from proxy.domain.request import Message
from proxy.domain.tools import ToolCall
from proxy.language.prompting.template_forms import INSTRUCTIONS
from proxy.language.syntax.call_syntax import CallSyntax
from proxy.language.syntax.json_calls import GenericParser

CALL, END_OF_CALL = GenericParser.sections[0]
RESULT, END_OF_RESULT = "<function_result>", "</function_result>"


def worded(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """The chat with tools, calls and results as text. tools: as templates get them."""
    found = tuple(_without_calls(messages))
    if not tools:
        return found
    words = _description([body["function"] for body in tools])
    if found and found[0].role in INSTRUCTIONS:
        first, found = found[0], found[1:]
        words = "\n\n".join(filter(None, (first.content, words)))
    return (Message(role="system", content=words), *found)


def with_written_calls(messages: Sequence[Message], syntax: CallSyntax | None) -> Sequence[Message]:
    """The chat with calls in the text of the answers, for templates that show tools but no calls:
    there the text of an answer has what the model wrote. syntax: the family's, if it has one.
    """
    found = list(messages)
    for at, message in enumerate(messages):
        if syntax and message.tool_calls and (calls := syntax.written(message.tool_calls)):
            content = f"{message.content or ''}{calls}"
            found[at] = replace(message, content=content, tool_calls=())
    return found


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
