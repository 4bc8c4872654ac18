"""Requests as Codex makes them (codex.json says where they are from), and what its parser reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.responses.formats import events
from tests.fixtures.stack import PLAIN

RECORDED = json.loads((Path(__file__).parent / "codex.json").read_text())
COUNTS = ("input_tokens", "output_tokens", "total_tokens")


def sent(stack, name: str, **fields: Any) -> httpx.Response:
    return PLAIN.post(f"{stack.url}/v1/responses", json={**RECORDED[name], **fields})


def parsed(response: httpx.Response) -> list[dict[str, Any]]:
    """The items, as Codex takes them from the stream: only finished ones, with fields that must be
    there, and no more of the last event than the id and the usage.
    """
    assert response.status_code == 200, response.text
    found = events(response.text)
    assert found[0]["type"] == "response.created"
    assert "response" in found[0]
    (last,) = (one["response"] for one in found if one["type"] == "response.completed")
    assert isinstance(last["id"], str)
    assert all(isinstance(last["usage"][name], int) for name in COUNTS)
    assert isinstance(last["usage"]["input_tokens_details"]["cached_tokens"], int)
    assert isinstance(last["usage"]["output_tokens_details"]["reasoning_tokens"], int)
    items = [one["item"] for one in found if one["type"] == "response.output_item.done"]
    text = "".join(one["delta"] for one in found if one["type"] == "response.output_text.delta")
    assert text == "".join(map(text_of, items))
    for one in found:
        if one["type"] == "response.reasoning_text.delta":
            assert isinstance(one["content_index"], int)
    return items


def text_of(item: dict[str, Any]) -> str:
    is_message = item["type"] == "message"
    return "".join(part["text"] for part in item["content"]) if is_message else ""


def as_sent_back(item: dict[str, Any]) -> dict[str, Any]:
    """As Codex writes an item of the answer: without id, and of reasoning without its content."""
    kept = {
        "message": ("role", "content"),
        "function_call": ("name", "arguments", "call_id"),
        "reasoning": ("summary", "encrypted_content"),
    }[item["type"]]
    content = [{"type": part["type"], "text": part["text"]} for part in item.get("content", ())]
    return {"type": item["type"], **{name: {**item, "content": content}[name] for name in kept}}


def test_a_turn_with_a_call(stack):
    (call,) = parsed(sent(stack, "first turn"))
    assert (call["type"], call["name"]) == ("function_call", "get_weather")
    assert json.loads(call["arguments"]) == {"city": "Rome"}
    output = RECORDED["after a call"]["input"][-1]
    again = [
        *RECORDED["first turn"]["input"],
        as_sent_back(call),
        {**output, "call_id": call["call_id"]},
    ]
    for fields in ({}, {"input": again}):
        (answer,) = parsed(sent(stack, "after a call", **fields))
        assert "21" in text_of(answer)


def test_tools_and_a_schema_of_its_own(stack):
    (answer,) = parsed(sent(stack, "output schema"))
    assert json.loads(text_of(answer)) == {"name": "Tom", "age": 31}
    assert parsed(sent(stack, "tools of its own"))


def test_reasoning_comes_back_as_encrypted_content(scripted_stack):
    fields = {"model": "thinker", "tools": []}
    thought, said = parsed(sent(scripted_stack, "first turn", **fields))
    assert (thought["type"], said["type"]) == ("reasoning", "message")
    assert thought["encrypted_content"]
    given = [
        *RECORDED["first turn"]["input"],
        as_sent_back(thought),
        as_sent_back(said),
        RECORDED["first turn"]["input"][-1],
    ]
    counted = []
    for items in (given, [item for item in given if item["type"] != "reasoning"]):
        response = sent(scripted_stack, "first turn", **fields, input=items)
        parsed(response)
        counted.append(events(response.text)[-1]["response"]["usage"]["input_tokens"])
    assert counted[0] >= counted[1]


@pytest.mark.parametrize("kind", ["web_search", "local_shell", "image_generation"])
def test_hosted_tools_are_left_out_and_named(stack, kind):
    tools = [*RECORDED["first turn"]["tools"], {"type": kind}]
    response = sent(stack, "first turn", tools=tools)
    assert response.headers["x-dropped-tools"] == kind
    (call,) = parsed(response)
    assert call["name"] == "get_weather"


def test_wishes_are_hints_and_what_this_server_does_not_have_is_refused_by_name(stack):
    for fields in (
        {"reasoning": {"effort": "medium", "summary": "auto", "context": "all_turns"}},
        {"text": {"verbosity": "low"}},
    ):
        assert parsed(sent(stack, "first turn", **fields))
    response = sent(stack, "first turn", service_tier="priority")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "service_tier")


def test_items_of_hosted_tools_become_text(stack):
    call = {
        "type": "local_shell_call",
        "call_id": "call_1",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"]},
    }
    given = [*RECORDED["first turn"]["input"], call, RECORDED["first turn"]["input"][-1]]
    assert parsed(sent(stack, "first turn", input=given))
