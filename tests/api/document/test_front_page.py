"""What a person or a probe finds that knows nothing but the server's address."""

from __future__ import annotations

import re

import pytest

from proxy import __version__
from tests.doubles.engine import FixedCatalog, ScriptedEngine, deltas
from tests.fixtures.stack import ROOT


def test_the_version_is_the_projects(idle):
    project = (ROOT / "pyproject.toml").read_text()
    (version,) = re.findall(r'^version = "(.*)"$', project, re.MULTILINE)
    assert idle.get("/version").json() == {"version": version}
    assert version == __version__


def test_the_root_names_the_server_and_every_endpoint(idle):
    found, document = idle.get("/").json(), idle.get("/openapi.json").json()
    assert (found["name"], found["version"]) == (document["info"]["title"], __version__)
    documented = {
        f"{method.upper()} {path.replace('{model}', '{model:path}')}"
        for path, operations in document["paths"].items()
        for method in operations
    }
    assert documented - {"GET /", "GET /v1", "GET /version"} == set(found["endpoints"])
    assert idle.get(found["documentation"]).status_code == 200
    assert idle.get(found["openapi"]).status_code == 200


def test_the_base_url_lists_what_is_below_it(idle):
    endpoints = idle.get("/v1").json()["endpoints"]
    assert {"GET /v1/models", "POST /v1/chat/completions"} <= set(endpoints)
    assert all(" /v1/" in endpoint for endpoint in endpoints)


def test_a_ping_tells_whether_requests_can_be_served(serve):
    assert serve(ScriptedEngine()).get("/ping").status_code == 200
    away = serve(ScriptedEngine(), FixedCatalog("Triton is away"))
    assert away.get("/ping").status_code == 503


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/demo", "/v1", "/health/live"])
def test_a_slash_at_the_end_changes_nothing_and_redirects_nobody(idle, path):
    plain, slashed = (idle.get(one, follow_redirects=False) for one in (path, f"{path}/"))
    assert (slashed.status_code, slashed.json()) == (200, plain.json())


def test_a_post_with_a_slash_at_the_end_is_answered(serve):
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
    answer = serve(ScriptedEngine(deltas("ab"))).post("/v1/chat/completions/", json=body)
    assert answer.json()["object"] == "chat.completion"
