"""Custom tools as functions, the only tools that chat templates know. Called by `chat_template`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from proxy.domain.request import Message
from proxy.domain.tools import Tool, ToolCall
from proxy.language.structured.escaped_grammar import IN_MARKUP, Escapes
from proxy.language.syntax.call_syntax import INPUT, INPUT_SCHEMA

_SYNTAXES = {"lark": "Lark grammar", "regex": "regular expression"}
_IN_MARKUP = f"In `{INPUT}`, write < as &lt; and & as &amp;."


def as_function(tool: Tool, escapes: Escapes) -> Tool:
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


def with_functions(
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
