"""An offered tool that no model can call is left out, named in the answer, and refused only where
it is needed; on every protocol.
"""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.api.tools.test_tools import CATALOG, SCHEMA
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.own_document import OwnDocument

DROPPED = "x-dropped-tools"
HOSTED = ["web_search", "image_generation", "local_shell", "code_interpreter", "file_search", "mcp"]
ANTHROPICS = ["web_search_20250305", "computer_20250124", "bash_20250124", "mcp_toolset"]
OWN = {
    "/v1/chat/completions": {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
    "/v1/responses": {"type": "function", "name": "f", "parameters": SCHEMA},
    "/v1/messages": {"name": "f", "input_schema": SCHEMA},
}


def body(path: str, **fields: Any) -> dict[str, Any]:
    if path == "/v1/responses":
        return {"model": "demo", "input": "hi", **fields}
    messages = [{"role": "user", "content": "hi"}]
    return {"model": "demo", "max_tokens": 9, "messages": messages, **fields}


def hosted(path: str) -> list[dict[str, Any]]:
    kinds = ANTHROPICS if path == "/v1/messages" else [*HOSTED, "of_tomorrow"]
    return [{"type": kind, "name": "x", "anything": {"nested": [1]}} for kind in kinds]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", OWN)
def test_a_tool_that_no_model_can_call_is_left_out_and_reported(serve, path, stream):
    engine, offered = ScriptedEngine(deltas("ok")), hosted(path)
    with capture_logs() as lines:
        sent = body(path, tools=[offered[0], OWN[path], *offered[1:]], stream=stream)
        response = serve(engine, CATALOG).post(path, json=sent)
    assert response.status_code == 200, response.text
    kinds = [one["type"] for one in offered]
    assert response.headers[DROPPED] == ", ".join(kinds)
    (line,) = (one for one in lines if one["event"] == "request")
    assert line["dropped_tools"] == kinds
    assert engine.requests[0].text.startswith("<f>[user]")


@pytest.mark.parametrize(
    ("path", "offer"),
    [
        ("/v1/chat/completions", {"type": "namespace", "name": "n", "tools": []}),
        ("/v1/chat/completions", {"type": "tool_search"}),
        ("/v1/chat/completions", {"type": "web_search"}),
        ("/v1/messages", {"type": "namespace"}),
        ("/v1/messages", {"type": "tool_search", "execution": "client"}),
        ("/v1/responses", {"type": "tool_search"}),
        ("/v1/responses", {"type": "tool_search", "execution": "server"}),
        ("/v1/responses", {"type": "tool_search", "execution": "client"}),
        (
            "/v1/responses",
            {"type": "namespace", "name": "n", "tools": [{"type": "tool_search"}]},
        ),
    ],
)
def test_an_offer_that_the_server_takes_fits_the_document(serve, path, offer):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    own = OwnDocument.of(client, __name__)
    sent = body(path, tools=[OWN[path], offer])
    assert client.post(path, json=sent).status_code == 200
    content = own.document["paths"][path]["post"]["requestBody"]["content"]
    own.schema(content["application/json"]["schema"]).validate(sent)


@pytest.mark.parametrize("path", OWN)
def test_none_that_can_be_called_is_refused(serve, path):
    engine = ScriptedEngine(deltas("ok"))
    response = serve(engine, CATALOG).post(path, json=body(path, tools=hosted(path)))
    assert (response.status_code, engine.requests) == (400, [])
    assert hosted(path)[0]["type"] in response.text


@pytest.mark.parametrize(
    ("path", "choice"),
    [
        ("/v1/responses", {"type": "web_search"}),
        (
            "/v1/responses",
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "mcp"}]},
        ),
        ("/v1/messages", {"type": "tool", "name": "x"}),
    ],
)
def test_a_choice_that_needs_one_is_refused(serve, path, choice):
    engine = ScriptedEngine(deltas("ok"))
    sent = body(path, tools=[OWN[path], *hosted(path)], tool_choice=choice)
    response = serve(engine, CATALOG).post(path, json=sent)
    assert (response.status_code, engine.requests) == (400, [])
    assert "tool_choice" in response.text


def test_a_choice_among_some_keeps_those_that_can_be_called(serve):
    engine, path = ScriptedEngine(deltas("ok")), "/v1/responses"
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}],
    }
    sent = body(path, tools=[OWN[path], *hosted(path)], tool_choice=choice)
    assert serve(engine, CATALOG).post(path, json=sent).status_code == 200


def test_an_error_names_the_callers_own_place_behind_tools_that_are_left_out(serve):
    for path, wrong, param in (
        (
            "/v1/chat/completions",
            {"type": "function", "function": {"name": "f", "parameters": {"type": "no"}}},
            "tools[1].function.parameters",
        ),
        (
            "/v1/responses",
            {"type": "function", "name": "f", "parameters": {"type": "no"}},
            "tools[1].parameters",
        ),
    ):
        sent = body(path, tools=[{"type": "web_search"}, wrong])
        response = serve(ScriptedEngine(deltas("ok")), CATALOG).post(path, json=sent)
        assert response.json()["error"]["param"] == param, response.text


def test_a_type_cannot_write_a_header(serve):
    path = "/v1/responses"
    kinds = ["a\r\nset-cookie: x", "ü" * 9, *(f"kind_{at}" for at in range(99))]
    tools = [{"type": kind} for kind in kinds]
    sent = body(path, tools=[OWN[path], *tools])
    response = serve(ScriptedEngine(deltas("ok")), CATALOG).post(path, json=sent)
    shown = response.headers[DROPPED].split(", ")
    assert shown[0] == "a__set-cookie__x"
    assert len(shown) == 16
    assert response.headers[DROPPED].isascii()
