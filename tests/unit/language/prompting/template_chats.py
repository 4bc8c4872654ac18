"""Chats as agents send them, and what a prompt must have of each."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from proxy.domain.request import Message
from proxy.domain.tools import Tool, ToolCall

ARGUMENTS = '{"path": "pAth1", "limit": 17, "deep": {"keys": ["kEy1", "a b"]}, "unset": null}'
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "wHich"},
        "limit": {"type": "integer"},
    },
    "required": ["path"],
}
FULL = Tool(name="lookUp", description="lOoks it up", parameters=SCHEMA)
BARE = Tool(name="lookUp", parameters={"properties": {"p": {}}})
Chat = tuple[tuple[Message, ...], tuple[Tool, ...]]


def said(role: str, content: str | None, **fields: object) -> Message:
    return Message(role=role, content=content, **fields)


def call(id: str, arguments: str = ARGUMENTS) -> ToolCall:
    return ToolCall(id=id, name="lookUp", arguments=arguments)


def calling(content: str | None, *calls: ToolCall, **fields: object) -> Message:
    return said("assistant", content, tool_calls=calls or (call("call_abc"),), **fields)


SYSTEM, LATER = said("system", "sYs1"), said("system", "sYs2")
USER, AGAIN, ANSWER = said("user", "uSer1"), said("user", "uSer2"), said("assistant", "aNs1")
RESULT = said("tool", "rEs1", tool_call_id="call_abc")
RESULT_2 = said("tool", "rEs2", tool_call_id="call_def")
PARALLEL = (call("call_abc"), call("call_def", '{"path": "pAth2"}'))
OF_TURNS: dict[str, Chat] = {
    "a user": ((USER,), ()),
    "turns": ((SYSTEM, USER, ANSWER, AGAIN), ()),
    "two systems": ((SYSTEM, LATER, USER), ()),
    "a system later": ((SYSTEM, USER, ANSWER, LATER, AGAIN), ()),
    "a system at the end": ((SYSTEM, USER, LATER), ()),
    "a developer": ((said("developer", "dEv1"), USER), ()),
    "system and developer": ((SYSTEM, said("developer", "dEv1"), USER), ()),
    "two users": ((USER, AGAIN), ()),
    "two answers": ((USER, ANSWER, said("assistant", "aNs2"), AGAIN), ()),
    "a tool without description": ((USER,), (replace(FULL, description=None),)),
    "a tool without parameters": ((USER,), (replace(FULL, parameters=None),)),
    "a tool with a name and a bare property": ((USER,), (BARE,)),
}
OF_CALLS: dict[str, Chat] = {
    "a call": ((USER, calling(None), RESULT), (FULL,)),
    "a call and an empty text": ((USER, calling(""), RESULT), (FULL,)),
    "a call, then a user": ((USER, calling(None), RESULT, AGAIN), (FULL,)),
    "a call, then an answer": ((SYSTEM, USER, calling(None), RESULT, ANSWER, AGAIN), (FULL,)),
    "text and a call": ((USER, calling("aNs1"), RESULT), (FULL,)),
    "reasoning and a call": ((USER, calling(None, reasoning="tHink1"), RESULT), (FULL,)),
    "reasoning, text and a call": ((USER, calling("aNs1", reasoning="tHink1"), RESULT), (FULL,)),
    "parallel calls": ((USER, calling(None, *PARALLEL), RESULT, RESULT_2), (FULL,)),
    "calls in two turns": (
        (USER, calling(None), RESULT, calling(None, PARALLEL[1]), RESULT_2),
        (FULL,),
    ),
    "a result without content": (
        (USER, calling(None), said("tool", None, tool_call_id="call_abc")),
        (FULL,),
    ),
}
IMAGE: Chat = ((said("user", "uSer1uSer2", parts=("uSer1", None, "uSer2")),), ())
# A dictionary in Python's words, and JSON inside a JSON string.
SPOILT = re.compile(r"""'(?:path|keys|name)'\s*:|\\"(?:path|keys)""")


def missing(text: str, chat: Chat) -> list[str]:
    """What a user of the chat can see, and the prompt does not have."""
    messages, tools = chat
    words = [tool.name for tool in tools] + [tool.description for tool in tools if tool.description]
    for message in messages:
        words += filter(None, message.parts or (message.content,))
        for one in message.tool_calls:
            words += (one.name, json.loads(one.arguments)["path"])
    return [word for word in words if word not in text]
