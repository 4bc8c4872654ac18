"""Bodies: JSON shapes, templates' values, tools; and scrapes of /metrics."""

from __future__ import annotations

import json
from typing import Any

from tests.long.hostile.attack import ANY, Attack, Target
from tests.long.hostile.caller import RENDER, Body, burst, post
from tests.long.hostile.schema_attacks import PATTERNS, properties
from tests.long.hostile.structured_attacks import HI, chat, fresh

REFUSED_BODY = frozenset({400, 413, 415, 422, 429})


def nested(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = {"a": [made]}
    return made


def raw(tail: str) -> Body:
    """A chat's body as text, with more fields that json.dumps would not write."""

    def body(target: Target) -> bytes:
        return (json.dumps(chat()(target))[:-1] + "," + tail + "}").encode()

    return body


def tools(count: int, parameters: Any) -> list[Any]:
    """`parameters` of the first one has a mark of its own; see structured_attacks.fresh."""
    given = [{**parameters, "title": fresh()}, *[parameters] * (count - 1)]
    return [
        {"type": "function", "function": {"name": f"f{i}", "parameters": one}}
        for i, one in enumerate(given)
    ]


def with_tools(count: int, parameters: Any, **fields: Any) -> Body:
    return lambda target: chat(tools=tools(count, parameters), **fields)(target)


def calls(arguments: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]


def wide(properties: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"p{i}": {"type": "string", "enum": ["a", "b"]} for i in range(properties)},
        "required": [f"p{i}" for i in range(properties)],
    }


def schema_tower(depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        made = {"type": "object", "properties": {"a": made}, "required": ["a"]}
    return made


JSON = [
    Attack("json: 9.9 MB of [[1],…", post(raw('"x":[' + "[1]," * 2_470_000 + "[1]]"))),
    Attack("json: 1.9 MB of [[1],…", post(raw('"x":[' + "[1]," * 474_000 + "[1]]"))),
    Attack("json: 1.9 MB of [[1],… in metadata",
        post(raw('"metadata":{"a":[' + "[1]," * 474_000 + "[1]]}"))),
    Attack("json: 1.9 MB of empty objects in messages",
        post(lambda t: b'{"model":"%s","messages":[' % t.steady.encode() + b"{}," * 630_000
             + b"{}]}")),
    Attack("json: 1.9 MB of zeros in stop", post(raw('"stop":[' + "0," * 940_000 + "0]"))),
    Attack("json: 300,000 escapes", post(raw('"user":"' + "\\u00e9" * 300_000 + '"'))),
    Attack("json: 300,000 surrogate pairs in a message",
        post(lambda t: b'{"model":"%s","max_tokens":1,"messages":[{"role":"user","content":"'
             % t.steady.encode() + b"\\ud83d\\ude00" * 150_000 + b'"}]}')),
    Attack("json: 200,000 equal keys", post(raw('"temperature":1,' * 100_000 + '"temperature":1'))),
    Attack("json: 100,000 unknown keys",
        post(raw(",".join(f'"k{i}":1' for i in range(100_000))))),
    Attack("json: an integer of 100,000 digits", post(raw('"seed":' + "9" * 100_000))),
    Attack("json: a float of 1,000,000 digits", post(raw('"temperature":0.' + "1" * 1_000_000))),
    Attack("json: arrays 500,000 deep", post(lambda _: b"[" * 500_000)),
    Attack("json: 8 bodies of 1.9 MB of [[1],… at once",
        burst(raw('"x":[' + "[1]," * 474_000 + "[1]]"), count=8), wall_s=20, cpu_s=2),
    Attack("json: a text of quotes and brackets",
        post(chat(messages=[{"role": "user", "content": '\\"[{' * 300_000}]))),
    Attack("body: 20 MB, over every limit", post(lambda _: b" " * 20_000_000),
        answers=REFUSED_BODY, growth_mb=60),
    Attack("metadata: 100,000 keys",
        post(chat(metadata={f"k{i}": "v" * 10 for i in range(100_000)}))),
    Attack("user: 1.9 MB for the log", post(chat(user="u" * 1_900_000))),
    Attack("model: a name of 1.9 MB", post(chat(model="m" * 1_900_000)), answers=ANY),
]  # fmt: skip

TEMPLATES = [
    Attack("template: values 90 deep", post(chat(chat_template_kwargs={"a": nested(45)}))),
    Attack("template: values of 1.9 MB",
        post(chat(chat_template_kwargs={f"k{i}": "v" * 100 for i in range(16_000)}))),
    Attack("template: a loop in the caller's own",
        post(chat(chat_template="{% for i in range(99999) %}" * 3 + "a" + "{% endfor %}" * 3))),
    Attack("template: a power of ten", post(chat(chat_template="{{ 10 ** 10 ** 8 }}"))),
    Attack("template: 2,000 operators in a row",
        post(chat(chat_template="{{ 1" + " % 1" * 2_000 + " }}"))),
    Attack("template: a string of a gigabyte", post(chat(chat_template="{{ 'a' * 10**9 }}"))),
    Attack("documents: 5,000",
        post(chat(documents=[{"title": "t", "text": "x" * 300} for _ in range(5_000)]))),
    Attack("messages: tool calls with arguments 90 deep",
        post(chat(messages=calls(json.dumps(nested(45)))))),
    Attack("messages: tool calls with arguments 5,000 deep",
        post(chat(messages=calls('{"a":' * 5_000 + "1" + "}" * 5_000)))),
    Attack("messages: tool call arguments of 1.9 MB of [[1],…",
        post(chat(messages=calls('{"a":[' + "[1]," * 470_000 + "[1]]}")))),
    Attack("messages: 100,000 text parts",
        post(chat(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 40_000}]))
        ),
    Attack("messages: 2,000 tool calls in one message",
        post(chat(messages=[*HI, {"role": "assistant", "content": None, "tool_calls": [
            {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            for i in range(2_000)]}]))),
]  # fmt: skip

TOOLS = [
    Attack("tools: 128 with schemas 25 deep",
        post(with_tools(128, schema_tower(25), tool_choice="required"))),
    Attack("tools: 128 with 10 enums",
        post(with_tools(128, wide(10), tool_choice="required"))),
    Attack("tools: 4,000 for /tokenize",
        post(lambda _: {"messages": HI, "tools": tools(4_000, wide(1))}, "/tokenize")),
    Attack("tools: 128 rendered for 128 choices",
        post(with_tools(128, wide(8), n=128))),
    Attack("tools: one with 80 patterns (a{500}){500}",
        post(with_tools(1, properties(PATTERNS), tool_choice="required"))),
    Attack("render: 128 tools with schemas 25 deep",
        post(with_tools(128, schema_tower(25), tool_choice="required"), RENDER)),
]  # fmt: skip


METRICS = [
    Attack("metrics: 200 at once", burst(lambda _: b"", "/metrics", count=200), answers=ANY | {405},
        wall_s=20, cpu_s=3),
]  # fmt: skip

ATTACKS = [*JSON, *TEMPLATES, *TOOLS, *METRICS]
