"""/admin/v1/log-level: shows and changes the level, for administrators, with an audit entry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from proxy.domain.errors import StoreUnavailable
from proxy.domain.log_level import LogLevel
from tests.fixtures.operated_pools import OperatedPools
from tests.fixtures.own_document import OwnDocument

PATH = "/admin/v1/log-level"


@pytest.fixture
def operated() -> OperatedPools:
    return OperatedPools()


@pytest.fixture
def client(operated) -> Iterator[TestClient]:
    with TestClient(operated.app) as client:
        client.headers["authorization"] = f"Bearer {operated.admin}"
        yield client


def test_the_level_changes_and_the_audit_log_has_it(client, operated):
    own = OwnDocument(client.get("/openapi.json").json())
    configured = {"level": "info", "configured": "info", "returns_in_s": None}
    assert client.get(PATH).json() == configured
    answer = client.put(PATH, json={"level": "debug"})
    own.judge(own.document["paths"][PATH]["put"], answer)
    assert answer.json() == {**configured, "level": "debug"}
    assert operated.applied == [LogLevel.DEBUG]
    details = {"level": "debug", "for_s": None}
    assert operated.audit.entries == [("log-level.set", "log-level", "admin", details)]


def test_it_may_have_an_end(client):
    shown = client.put(PATH, json={"level": "warning", "for_s": 600}).json()
    assert shown["level"] == "warning"
    assert 0 < shown["returns_in_s"] <= 600


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"level": "loud"}, "level"),
        ({"level": "DEBUG"}, "level"),
        ({}, "level"),
        ({"level": "debug", "for_s": 0}, "for_s"),
        ({"level": "debug", "for_s": 10**9}, "for_s"),
        ({"level": "debug", "until": 5}, "until"),
    ],
)
def test_what_is_no_level_is_refused_by_name(client, operated, body, param):
    answer = client.put(PATH, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert (operated.applied, operated.audit.entries) == ([], [])


def test_a_change_that_cannot_be_audited_is_not_made(client, operated):
    operated.audit.fault = StoreUnavailable(detail="away")
    assert client.put(PATH, json={"level": "debug"}).status_code == 503
    assert operated.applied == []


def test_it_needs_the_scope_of_administrators(client, operated):
    client.headers["authorization"] = f"Bearer {operated.user}"
    for method in ("GET", "PUT"):
        assert client.request(method, PATH, json={"level": "debug"}).status_code == 403
    assert operated.applied == []
