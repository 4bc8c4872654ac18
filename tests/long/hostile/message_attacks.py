"""Anthropic's bodies: many, deep and large blocks, and ids that do not pair."""

from __future__ import annotations

import json
from typing import Any

from tests.long.hostile.attack import ANY, Attack, Target
from tests.long.hostile.body_attacks import nested, schema_tower
from tests.long.hostile.caller import Body, burst, post
from tests.long.hostile.structured_attacks import HI, fresh

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
BILLING = "x-anthropic-billing-header: "


def message(*content: Any, **fields: Any) -> Body:
    """content: of the user's message."""

    def body(target: Target) -> dict[str, Any]:
        messages = [{"role": "user", "content": list(content)}] if content else HI
        return {"model": target.steady, "max_tokens": 4, "messages": messages, **fields}

    return body


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def uses(count: int, given: Any) -> dict[str, Any]:
    call = {"type": "tool_use", "name": "f", "input": given}
    return {"role": "assistant", "content": [{**call, "id": f"c{at}"} for at in range(count)]}


def results(*numbers: int) -> dict[str, Any]:
    found = [{"type": "tool_result", "tool_use_id": f"c{at}"} for at in numbers]
    return {"role": "user", "content": found}


def tools(count: int, schema: Any) -> list[dict[str, Any]]:
    given = [{**schema, "title": fresh()}, *[schema] * (count - 1)]
    return [{"name": f"f{at}", "input_schema": one} for at, one in enumerate(given)]


def image(data: str) -> dict[str, Any]:
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": data},
    }


ATTACKS = [
    Attack("messages: 1.9 MB of text blocks", post(message(*[text("a")] * 55_000), MESSAGES)),
    Attack("messages: 24,000 text blocks", post(message(*[text("a")] * 24_000), MESSAGES)),
    Attack("messages: 630,000 empty objects",
        post(lambda t: b'{"model":"%s","max_tokens":4,"messages":[{"role":"user","content":['
             % t.steady.encode() + b"{}," * 630_000 + b"{}]}]}", MESSAGES)),
    Attack("messages: 2,000 system messages in turn",
        post(message(messages=[*HI, {"role": "system", "content": "x" * 900}] * 1_000), MESSAGES)),
    Attack("messages: a tool's input 90 deep",
        post(message(messages=[*HI, uses(1, nested(45)), results(0)]), MESSAGES)),
    Attack("messages: a tool's input 5,000 deep",
        post(lambda t: json.dumps(message(messages=[*HI, uses(1, {}), results(0)])(t)).replace(
            "{}", '{"a":' * 5_000 + "1" + "}" * 5_000).encode(), MESSAGES)),
    Attack("messages: a tool's input of 1.9 MB",
        post(message(messages=[*HI, uses(1, {"a": "é" * 900_000}), results(0)]), MESSAGES)),
    Attack("messages: a tool's input with 150,000 numbers",
        post(message(messages=[*HI, uses(1, {"a": [1] * 150_000}), results(0)]), MESSAGES)),
    Attack("messages: 8,000 calls with their results",
        post(message(messages=[*HI, uses(8_000, {}), results(*range(8_000))]), MESSAGES)),
    Attack("messages: 8,000 calls with results of others",
        post(message(messages=[*HI, uses(8_000, {}), results(*range(8_000, 0, -1))]), MESSAGES)),
    Attack("messages: 8,000 calls without results",
        post(message(messages=[*HI, uses(8_000, {}), *HI]), MESSAGES)),
    Attack("messages: 2,000 results in results' messages",
        post(message(messages=[*HI, uses(1, {}), results(0)] * 680), MESSAGES)),
    Attack("messages: a billing header of 1.9 MB", post(message(system=BILLING + "x" * 1_900_000),
        MESSAGES)),
    Attack("messages: 1.9 MB of spaces in place of a billing header",
        post(message(system=" " * 1_900_000), MESSAGES)),
    Attack("messages: an image of 1.9 MB that is none",
        post(message(image("A" * 1_900_000)), MESSAGES)),
    Attack("messages: 128 tools with schemas 25 deep",
        post(message(tools=tools(128, schema_tower(25)), tool_choice={"type": "any"}), MESSAGES)),
    Attack("messages: 12,000 tools", post(message(tools=tools(12_000, {})), MESSAGES)),
    Attack("count_tokens: 100 prompts of 60 KB at once",
        burst(lambda t: {"model": t.steady, "messages": [
            {"role": "user", "content": "word " * 12_000}]}, COUNT, count=100),
        answers=ANY, wall_s=20, cpu_s=3),
]  # fmt: skip
