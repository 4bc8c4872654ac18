"""The WebSocket form of /v1/responses."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from proxy.api.responses.response_socket import MOST_BYTES_OF_ALL
from proxy.domain.errors import EngineFailed
from proxy.domain.identity import Limits
from tests.api.prompts.test_images import SEEING, data_url
from tests.api.responses.formats import RESPONSES, body, folded, settled, whole
from tests.api.responses.test_input import CATALOG
from tests.doubles.engine import FixedCatalog, ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.pictures import PNG

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
        (create(tools=[{"type": "web_search"}]), "tools"),
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


@pytest.fixture
def tenants(serve):
    """tenants(limits, **settings) -> a client, and the headers of the tenants `one` and `other`."""

    def start(limits=None, catalog=CATALOG, engine=None, **settings):
        keys, headers = KeysInMemory(), {}
        for name in ("one", "other"):
            keys.add_tenant(name, **({"limits": limits} if limits else {}))
            key = keys.add(f"{name:x>5}", tenant=name)
            headers[name] = {"authorization": f"Bearer {key}"}
        engine = engine or ScriptedEngine(deltas("ok"))
        return serve(engine, catalog, keys=keys, key_pepper=PEPPER, **settings), headers

    return start


def code_of(found: list[dict[str, Any]]) -> str | None:
    return found[-1]["error"]["code"] if found[-1]["type"] == "error" else None


@pytest.mark.parametrize("fits", [True, False])
def test_a_message_that_generates_nothing_counts_as_a_request(tenants, fits):
    """Also one whose prompt does not fit: it was tokenized."""
    client, headers = tenants(Limits(requests_per_minute=3))
    given = {"generate": False, "input": "hi" if fits else "x" * 5_000, "store": False}
    with client.websocket_connect(RESPONSES, headers=headers["one"]) as socket:
        found = [code_of(turn(socket, **given)) for _ in range(4)]
        assert code_of(turn(socket)) == "rate_limit_exceeded"
    assert found == [None if fits else "context_length_exceeded"] * 3 + ["rate_limit_exceeded"]


def test_an_image_that_only_the_engine_can_count_can_be_prepared(serve):
    part = {"type": "input_image", "image_url": data_url("png", PNG)}
    given = [{"role": "user", "content": [part, {"type": "input_text", "text": "what?"}]}]
    catalog = FixedCatalog(facts=SEEING)
    with serve(ScriptedEngine(), catalog).websocket_connect(RESPONSES) as socket:
        assert code_of(turn(socket, generate=False, input=given)) is None


def test_what_all_sockets_keep_is_bounded_and_one_tenant_pushes_out_only_its_own(tenants):
    large = FixedCatalog(facts=replace(CATALOG.facts, context_length=4_000_000))
    client, headers = tenants(catalog=large, max_websockets=400, responses_keep_s=0)
    text = "x" * 1_900_000
    with ExitStack() as stack:

        def kept(tenant: str, **fields: object) -> tuple[Any, str]:
            opened = client.websocket_connect(RESPONSES, headers=headers[tenant])
            socket = stack.enter_context(opened)
            *_, last = turn(socket, generate=False, store=False, **fields)
            return socket, last["response"]["id"]

        small = kept("other")
        many = [kept("one", input=text) for _ in range(MOST_BYTES_OF_ALL // len(text) + 3)]
        found = [
            code_of(turn(socket, input="", store=False, previous_response_id=id, generate=False))
            for socket, id in (small, many[-1], many[0])
        ]
        assert found == [None, None, "response_not_found"]


@pytest.mark.parametrize("path", [RESPONSES, "/v1/chat/completions/ws"])
def test_a_tenant_has_a_quarter_of_the_sockets_of_both_routes(tenants, path):
    client, headers = tenants(max_websockets=8)
    with ExitStack() as stack:
        for each in (RESPONSES, "/v1/chat/completions/ws"):
            stack.enter_context(client.websocket_connect(each, headers=headers["one"]))
        with (
            pytest.raises(WebSocketDenialResponse) as refused,
            client.websocket_connect(path, headers=headers["one"]),
        ):
            pass
        assert refused.value.status_code == 429
        assert refused.value.json()["error"]["code"] == "queue_full"
        assert refused.value.headers["retry-after"]
        with client.websocket_connect(path, headers=headers["other"]):
            pass
    with client.websocket_connect(path, headers=headers["one"]):
        pass
