"""The WebSocket form of /v1/responses."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from proxy.domain.errors import EngineFailed
from tests.api.responses.formats import RESPONSES, body, folded, settled, whole
from tests.api.responses.test_input import CATALOG
from tests.doubles.engine import ScriptedEngine, deltas

LAST = ("error", "response.completed", "response.incomplete", "response.failed")


def create(**fields: object) -> dict[str, Any]:
    return {"type": "response.create", **body(**fields)}


def turn(socket, **fields: object) -> list[dict[str, Any]]:
    socket.send_json(create(**fields))
    found = []
    while not found or found[-1]["type"] not in LAST:
        found.append(socket.receive_json())
    return found


def test_a_turn_has_the_events_of_the_stream(serve):
    client = serve(ScriptedEngine(deltas("<think>hm</think>ok")), CATALOG)
    with client.websocket_connect(RESPONSES) as socket:
        found = folded(turn(socket))
    assert settled(found) == settled(whole(client))
    assert client.get(f"{RESPONSES}/{found['id']}").json() == found


def test_the_next_turn_continues_what_is_kept_nowhere_else(serve):
    engine = ScriptedEngine(deltas("one"), then=[deltas("two")])
    client = serve(engine, CATALOG)
    with client.websocket_connect(RESPONSES) as socket:
        first = folded(turn(socket, store=False))
        assert client.get(f"{RESPONSES}/{first['id']}").status_code == 404
        turn(socket, input="more", store=False, previous_response_id=first["id"])
    assert engine.requests[1].text == "[user]hi[assistant]one[user]more"
    with client.websocket_connect(RESPONSES) as socket:
        (error,) = turn(socket, previous_response_id=first["id"])
    assert (error["status"], error["error"]["param"]) == (404, "previous_response_id")


def test_a_prepared_response_has_no_output_and_can_be_continued(serve):
    engine = ScriptedEngine(deltas("ok"))
    client = serve(engine, CATALOG)
    with client.websocket_connect(RESPONSES) as socket:
        *_, prepared = turn(socket, generate=False, store=False)
        assert (prepared["response"]["output"], engine.requests) == ([], [])
        turn(socket, input="go", previous_response_id=prepared["response"]["id"], store=False)
    assert engine.requests[0].text == "[user]hi[user]go"


def test_streams_of_one_socket_have_names(serve):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    with client.websocket_connect(RESPONSES) as socket:
        for name in ("a", "b"):
            socket.send_json(create(stream_id=name))
        found: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
        while not all(each and each[-1]["type"] in LAST for each in found.values()):
            event = socket.receive_json()
            found[event.pop("stream_id")].append(event)
    assert settled(folded(found["a"])) == settled(folded(found["b"]))


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (create(type="response.steer"), "type"),
        (create(background=True), "background"),
        (create(tools=[{"type": "web_search"}]), "tools[0]"),
        (create(model="x"), "model"),
    ],
)
def test_a_message_that_is_refused_leaves_the_socket_open(serve, message, param):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    with client.websocket_connect(RESPONSES) as socket:
        socket.send_json({**message, "stream_id": "s"})
        error = socket.receive_json()
        assert (error["type"], error["stream_id"], error["error"]["param"]) == ("error", "s", param)
        assert 400 <= error["status"] < 500
        assert turn(socket)[-1]["type"] == "response.completed"


def test_an_error_in_the_middle_is_an_event(serve):
    client = serve(ScriptedEngine(deltas("ab", None), error=EngineFailed("gone")), CATALOG)
    with client.websocket_connect(RESPONSES) as socket:
        socket.send_json(create())
        found = [socket.receive_json()]
        while found[-1]["type"] != "response.failed":
            found.append(socket.receive_json())
    assert found[-2]["message"] == "gone"


def test_a_socket_that_closes_ends_its_generations(serve):
    engine = ScriptedEngine(deltas("ab", None), hangs=True)
    client: TestClient = serve(engine, CATALOG)
    with client.websocket_connect(RESPONSES) as socket:
        socket.send_json(create())
        while socket.receive_json()["type"] != "response.output_text.delta":
            pass
    assert engine.closed_early == 1
