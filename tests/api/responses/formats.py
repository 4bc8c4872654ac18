"""Requests of the Responses API, and its streams: checked in their order, and folded."""

from __future__ import annotations

import json
from typing import Any

RESPONSES = "/v1/responses"
Json = dict[str, Any]
PARTS = {"message": "output_text", "reasoning": "reasoning_text"}
EVENTS = {
    "message": "output_text",
    "reasoning": "reasoning_text",
    "function_call": "function_call_arguments",
    "custom_tool_call": "custom_tool_call_input",
    "mcp_call": "mcp_call_arguments",
}
FIELDS = {"function_call": "arguments", "custom_tool_call": "input", "mcp_call": "arguments"}


def body(**fields: object) -> Json:
    return {"model": "demo", "input": "hi", **fields}


def whole(client, **fields: object) -> Json:
    response = client.post(RESPONSES, json=body(**fields))
    assert response.status_code == 200, response.text
    return response.json()


def stream(client, **fields: object) -> list[Json]:
    response = client.post(RESPONSES, json=body(stream=True, **fields))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    return events(response.text)


def events(text: str) -> list[Json]:
    """The events of a stream, which ends with [DONE]. Each has the name of its type."""
    *blocks, end, rest = text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    found = []
    for block in blocks:
        if block.startswith(":"):  # keeps the connection alive
            continue
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def folded(streamed: list[Json], *, opening: tuple[str, ...] = ("created", "in_progress")) -> Json:
    """What the events add up to, and the check that they come in OpenAI's order."""
    assert [event["sequence_number"] for event in streamed] == list(range(len(streamed)))
    count = len(opening)
    assert [event["type"] for event in streamed[:count]] == [f"response.{one}" for one in opening]
    last = streamed[-1]
    assert last["type"] == f"response.{last['response']['status']}"
    output: list[Json] = []
    left = streamed[count:-1]
    while left:
        left = left[_item(left, output) :]
    assert last["response"]["output"] == output
    ids = {event["response"]["id"] for event in streamed if "response" in event}
    assert len(ids) == 1
    return last["response"]


def _item(left: list[Json], output: list[Json]) -> int:
    """Takes the events of one item; how many they are."""
    added, index = left[0], len(output)
    item = added["item"]
    assert (added["type"], added["output_index"]) == ("response.output_item.added", index)
    assert item["status"] == "in_progress"
    kind = item["type"]
    end = next(at for at, one in enumerate(left) if one["type"] == "response.output_item.done")
    inner, done = left[1:end], left[end]["item"]
    assert left[end]["output_index"] == index
    assert all((one["item_id"], one["output_index"]) == (item["id"], index) for one in inner)
    names = [one["type"].removeprefix("response.") for one in inner]
    has_part = kind in PARTS
    if has_part:
        assert (names[0], names[-1]) == ("content_part.added", "content_part.done")
        assert inner[0]["part"] == {**inner[-1]["part"], "text": "", **_no_log_probs(kind)}
        assert all(one["content_index"] == 0 for one in inner)
        names, inner = names[1:-1], inner[1:-1]
    elif kind == "mcp_call":
        assert (names[0], names[-1].partition(".")[0]) == ("mcp_call.in_progress", "mcp_call")
        names, inner = names[1:-1], inner[1:-1]
    name = EVENTS[kind]
    assert names == [f"{name}.delta"] * (len(names) - 1) + [f"{name}.done"]
    text = "".join(one["delta"] for one in inner[:-1])
    field = FIELDS.get(kind, "text")
    assert inner[-1][field] == text
    shown = done["content"][0]["text"] if has_part else done[field]
    assert shown == text
    assert {**done, "status": item["status"], "content": item.get("content")} == {
        **item,
        **({} if has_part else {field: text}),
        **{key: done[key] for key in ("output", "error", "encrypted_content") if key in done},
        "content": item.get("content"),
    }
    output.append(done)
    return end + 1


def _no_log_probs(kind: str) -> Json:
    return {"logprobs": []} if kind == "message" else {}


def settled(response: Json) -> Json:
    """Without what differs between two responses to the same request."""
    own = response["id"].removeprefix("resp_")
    text = json.dumps({**response, "created_at": 0, "completed_at": response["completed_at"] and 1})
    return json.loads(text.replace(own, "ID"))
