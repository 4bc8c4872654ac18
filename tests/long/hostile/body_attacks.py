"""Bodies: JSON shapes, templates' values, tools; and scrapes of /metrics."""

from __future__ import annotations

import json
from typing import Any

from tests.long.hostile.attack import ANY, Target
from tests.long.hostile.caller import RENDER, Body, burst, post
from tests.long.hostile.schema_attacks import PATTERNS, properties
from tests.long.hostile.structured_attacks import HI, chat, fresh, one

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
    one("json: 9.9 MB of [[1],…", 7, post(raw('"x":[' + "[1]," * 2_470_000 + "[1]]"))),
    one("json: 1.9 MB of [[1],…", 7, post(raw('"x":[' + "[1]," * 474_000 + "[1]]"))),
    one("json: 1.9 MB of [[1],… in metadata", 7,
        post(raw('"metadata":{"a":[' + "[1]," * 474_000 + "[1]]}"))),
    one("json: 1.9 MB of empty objects in messages", 7,
        post(lambda t: b'{"model":"%s","messages":[' % t.steady.encode() + b"{}," * 630_000
             + b"{}]}")),
    one("json: 1.9 MB of zeros in stop", 7, post(raw('"stop":[' + "0," * 940_000 + "0]"))),
    one("json: 300,000 escapes", 7, post(raw('"user":"' + "\\u00e9" * 300_000 + '"'))),
    one("json: 300,000 surrogate pairs in a message", 7,
        post(lambda t: b'{"model":"%s","max_tokens":1,"messages":[{"role":"user","content":"'
             % t.steady.encode() + b"\\ud83d\\ude00" * 150_000 + b'"}]}')),
    one("json: 200,000 equal keys", 7, post(raw('"temperature":1,' * 100_000 + '"temperature":1'))),
    one("json: 100,000 unknown keys", 7,
        post(raw(",".join(f'"k{i}":1' for i in range(100_000))))),
    one("json: an integer of 100,000 digits", 7, post(raw('"seed":' + "9" * 100_000))),
    one("json: a float of 1,000,000 digits", 7, post(raw('"temperature":0.' + "1" * 1_000_000))),
    one("json: arrays 500,000 deep", 7, post(lambda _: b"[" * 500_000)),
    one("json: 8 bodies of 1.9 MB of [[1],… at once", 7,
        burst(raw('"x":[' + "[1]," * 474_000 + "[1]]"), count=8), wall_s=20, cpu_s=2),
    one("json: a text of quotes and brackets", 7,
        post(chat(messages=[{"role": "user", "content": '\\"[{' * 300_000}]))),
    one("body: 20 MB, over every limit", 7, post(lambda _: b" " * 20_000_000),
        answers=REFUSED_BODY, growth_mb=60),
    one("metadata: 100,000 keys", 0,
        post(chat(metadata={f"k{i}": "v" * 10 for i in range(100_000)}))),
    one("user: 1.9 MB for the log", 12, post(chat(user="u" * 1_900_000))),
    one("model: a name of 1.9 MB", 12, post(chat(model="m" * 1_900_000)), answers=ANY),
]  # fmt: skip

TEMPLATES = [
    one("template: values 90 deep", 0, post(chat(chat_template_kwargs={"a": nested(45)}))),
    one("template: values of 1.9 MB", 0,
        post(chat(chat_template_kwargs={f"k{i}": "v" * 100 for i in range(16_000)}))),
    one("template: a loop in the caller's own", 1,
        post(chat(chat_template="{% for i in range(99999) %}" * 3 + "a" + "{% endfor %}" * 3))),
    one("template: a power of ten", 1, post(chat(chat_template="{{ 10 ** 10 ** 8 }}"))),
    one("template: 2,000 operators in a row", 0,
        post(chat(chat_template="{{ 1" + " % 1" * 2_000 + " }}"))),
    one("template: a string of a gigabyte", 3, post(chat(chat_template="{{ 'a' * 10**9 }}"))),
    one("documents: 5,000", 0,
        post(chat(documents=[{"title": "t", "text": "x" * 300} for _ in range(5_000)]))),
    one("messages: tool calls with arguments 90 deep", 0,
        post(chat(messages=calls(json.dumps(nested(45)))))),
    one("messages: tool calls with arguments 5,000 deep", 0,
        post(chat(messages=calls('{"a":' * 5_000 + "1" + "}" * 5_000)))),
    one("messages: tool call arguments of 1.9 MB of [[1],…", 0,
        post(chat(messages=calls('{"a":[' + "[1]," * 470_000 + "[1]]}")))),
    one("messages: 100,000 text parts", 0,
        post(chat(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 40_000}]))
        ),
    one("messages: 2,000 tool calls in one message", 0,
        post(chat(messages=[*HI, {"role": "assistant", "content": None, "tool_calls": [
            {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            for i in range(2_000)]}]))),
]  # fmt: skip

TOOLS = [
    one("tools: 128 with schemas 25 deep", 4,
        post(with_tools(128, schema_tower(25), tool_choice="required"))),
    one("tools: 128 with 10 enums", 4,
        post(with_tools(128, wide(10), tool_choice="required"))),
    one("tools: 4,000 for /tokenize", 4,
        post(lambda _: {"messages": HI, "tools": tools(4_000, wide(1))}, "/tokenize")),
    one("tools: 128 rendered for 128 choices", 4,
        post(with_tools(128, wide(8), n=128))),
    one("tools: one with 80 patterns (a{500}){500}", 3,
        post(with_tools(1, properties(PATTERNS), tool_choice="required"))),
    one("render: 128 tools with schemas 25 deep", 4,
        post(with_tools(128, schema_tower(25), tool_choice="required"), RENDER)),
]  # fmt: skip


METRICS = [
    one("metrics: 200 at once", 0, burst(lambda _: b"", "/metrics", count=200), answers=ANY | {405},
        wall_s=20, cpu_s=3),
]  # fmt: skip

ATTACKS = [*JSON, *TEMPLATES, *TOOLS, *METRICS]
