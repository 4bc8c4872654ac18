"""The priority of a request: the fields that ask for one, the operator's words for priorities and
service tiers, and the caller's ceiling.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from tests.api.answers.test_parameters import LimitedCatalog
from tests.api.formats import BOTH, error_of, events
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.limits import AsCaller, caller

CHAT = "/v1/chat/completions"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
HEADER = "x-priority-capped"
INT32 = 2**31 - 1


def hint(priority: int) -> dict:
    return {"nvext": {"agent_hints": {"priority": priority}}}


def note(priority: str) -> dict:
    return {"metadata": {"priority": priority}}


@pytest.mark.parametrize(
    ("fields", "priority"),
    [
        ({"priority": -4}, 4),
        (hint(4), 4),
        (note("-4"), 4),
        (note("+4"), -4),
        (note("007"), -7),
        ({**note("-4"), "priority": -4, **hint(4)}, 4),
        (note("0"), 0),
        (note(str(INT32)), -INT32),
        *(
            (note(text), None)
            for text in ("High", "urgent", "", "4.0", "1e3", " 4", "4 ", "-", "0x4", "٤")
        ),
        ({"metadata": {"Priority": "4"}}, None),
        (note("low"), -10),
        (note("normal"), 0),
        ({**note("low"), "priority": 10}, -10),
    ],
)
def test_each_field_asks_for_a_priority(serve, fields, priority):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, max_priority=9).post(CHAT, json={**BODY, **fields})
    assert response.status_code == 200, response.text
    assert [seen.priority for seen in engine.requests] == [priority]
    assert HEADER not in response.headers
    used = None if priority is None else str(priority)
    assert response.headers.get("x-priority-class") == used


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({**note("4"), "priority": 3}, "metadata.priority"),
        ({**note("4"), **hint(4)}, "metadata.priority"),
        ({"priority": 4, **hint(4), **note("4")}, "nvext.agent_hints.priority"),
        (note(str(INT32 + 1)), "metadata.priority"),
        (note("-" + "9" * 500), "metadata.priority"),
        ({**note("high"), "priority": 3}, "metadata.priority"),
        ({**note("low"), **hint(4)}, "metadata.priority"),
    ],
)
def test_contradictions_and_numbers_out_of_range_are_refused_by_name(serve, fields, param):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, max_priority=9).post(CHAT, json={**BODY, **fields})
    assert (response.status_code, error_of(response)["param"]) == (400, param)
    assert len(response.text) < 500
    assert not engine.requests


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"priority": 1}, "priority"),
        (hint(-1), "nvext.agent_hints.priority"),
        (note("1"), "metadata.priority"),
        ({"priority": -1}, "priority"),
    ],
)
@BOTH
def test_where_nothing_orders_requests_the_field_is_refused_by_name(
    serve, path, body, fields, param
):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, LimitedCatalog("temperature")).post(path, json={**body, **fields})
    error = error_of(response)
    assert (error["code"], error["param"]) == ("unsupported_parameter", param)


@pytest.mark.parametrize("fields", [{"priority": 0}, note("normal"), hint(0)])
def test_where_nothing_orders_requests_the_default_may_be_asked_for(serve, fields):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, LimitedCatalog("temperature")).post(CHAT, json={**BODY, **fields})
    assert response.status_code == 200, response.text
    assert [seen.priority for seen in engine.requests] == [None]


@pytest.mark.parametrize(
    ("own", "fields", "gets", "header"),
    [
        (None, {"priority": -5}, 2, "-2"),
        (None, {"priority": -2}, 2, None),
        (None, {"priority": 3}, -3, None),
        (None, {}, None, None),
        (4, {"priority": -5}, 4, "-4"),
        (4, hint(5), 4, "-4"),
        (4, note("-5"), 4, "-4"),
        (4, note("high"), 4, "-4"),
        (None, note("high"), 2, "-2"),
        (4, {"priority": -3}, 3, None),
        (0, {"priority": -1}, 0, "0"),
        (-3, {"priority": 1}, -3, "3"),
        (-3, {"priority": 4}, -4, None),
        (-3, {"priority": 0}, -3, "3"),
        (-3, {}, -3, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_gets_at_most_the_callers_ceiling(serve, own, fields, gets, header, stream):
    engine = ScriptedEngine(deltas("a"))
    app = serve(engine, max_priority=2).app
    as_caller = AsCaller(app, replace(caller(), max_priority=own))
    with capture_logs() as lines:
        response = TestClient(as_caller).post(CHAT, json={**BODY, **fields, "stream": stream})
    assert response.status_code == 200
    (line,) = (one for one in lines if one["event"] == "request")
    assert line.get("capped_priority") == (None if header is None else gets)
    assert [seen.priority for seen in engine.requests] == [gets]
    assert response.headers.get(HEADER) == header


def test_every_choice_of_a_socket_has_the_ceiling(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, max_priority=0)
    with client.websocket_connect(f"{CHAT}/ws") as socket:
        socket.send_json({**BODY, "priority": -7, "n": 2})
        ended = 0
        while ended < 2:
            choices = socket.receive_json()["choices"]
            ended += sum(choice["finish_reason"] is not None for choice in choices)
    assert [seen.priority for seen in engine.requests] == [0, 0]


def test_a_caller_with_a_low_ceiling_may_use_a_model_without_priorities(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, LimitedCatalog("temperature"), max_priority=-5)
    assert client.post(CHAT, json=BODY).status_code == 200
    assert [seen.priority for seen in engine.requests] == [None]
    assert client.post(CHAT, json={**BODY, "priority": 9}).status_code == 400


def test_a_protocol_without_priorities_has_the_ceiling_too(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, max_priority=-5)
    assert client.post("/chat/json", json={"messages": BODY["messages"]}).status_code == 200
    assert [seen.priority for seen in engine.requests] == [-5]


@pytest.mark.parametrize(
    ("key", "tenant", "gets"), [(None, None, 1), (5, None, 5), (None, 3, 3), (5, 3, 3), (2, 3, 2)]
)
def test_the_tenants_ceiling_bounds_its_keys(serve, key, tenant, gets):
    engine, keys = ScriptedEngine(deltas("a")), KeysInMemory()
    keys.add_tenant("acme", max_priority=tenant, weight=2.5)
    secret = keys.add("k1ey")
    keys.change("k1ey", max_priority=key)
    client = serve(engine, keys=keys, key_pepper=PEPPER, max_priority=1)
    headers = {"authorization": f"Bearer {secret}"}
    response = client.post(CHAT, json={**BODY, "priority": -9}, headers=headers)
    assert [seen.priority for seen in engine.requests] == [gets]
    assert response.headers[HEADER] == str(-gets)


def test_without_keys_the_words_are_allowed_and_with_keys_they_are_capped(serve, keyed):
    engine = ScriptedEngine(deltas("a"))
    assert HEADER not in serve(engine).post(CHAT, json={**BODY, **note("high")}).headers
    response = keyed(engine).post(CHAT, json={**BODY, **note("high")})
    assert response.headers[HEADER] == "0"
    assert [seen.priority for seen in engine.requests] == [10, 0]


TIERS = {"priority_words": "urgent=3, flex=-5,priority=2"}


@pytest.mark.parametrize(
    ("fields", "gets", "served"),
    [
        ({"service_tier": "flex"}, -5, "flex"),
        ({"service_tier": "priority"}, 2, "priority"),
        ({"service_tier": "fast"}, 2, "priority"),
        ({"service_tier": "priority", **note("-2")}, 2, "priority"),
        ({"service_tier": "default", **note("urgent")}, 3, "default"),
        ({"service_tier": "auto"}, None, "default"),
        (note("high"), None, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
@BOTH
def test_the_operator_names_words_and_tiers(serve, path, body, fields, gets, served, stream):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, **TIERS).post(path, json={**body, **fields, "stream": stream})
    assert response.status_code == 200, response.text
    chunks = events(response) if stream else [response.json()]
    assert {chunk.get("service_tier") for chunk in chunks} == {served}
    assert [seen.priority for seen in engine.requests] == [gets]


def test_a_tier_above_the_ceiling_is_served_as_the_default(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, max_priority=1, **TIERS)
    response = client.post(CHAT, json={**BODY, "service_tier": "priority"})
    assert (response.json()["service_tier"], response.headers[HEADER]) == ("default", "-1")
    assert [seen.priority for seen in engine.requests] == [1]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"service_tier": "scale"}, "service_tier"),
        ({"service_tier": "flex", "priority": 0}, "service_tier"),
        ({"service_tier": "flex", **note("urgent")}, "service_tier"),
        ({"service_tier": "best"}, "service_tier"),
    ],
)
def test_a_tier_without_a_priority_and_contradictions_are_refused(serve, fields, param):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, **TIERS).post(CHAT, json={**BODY, **fields})
    assert (response.status_code, error_of(response)["param"]) == (400, param)
    assert not engine.requests


def test_a_tier_that_nothing_orders_is_refused_by_name(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, LimitedCatalog("temperature"), **TIERS)
    response = client.post(CHAT, json={**BODY, "service_tier": "flex"})
    assert error_of(response)["param"] == "service_tier"
