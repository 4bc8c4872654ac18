"""What callers see of models.yaml: deprecation, fallbacks, and a file that changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.doubles.engine import ScriptedEngine, deltas

MESSAGES = [{"role": "user", "content": "hi"}]
PROTOCOLS = pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}),
        ("/v1/completions", {"prompt": "hi"}),
        ("/chat/json", {"messages": MESSAGES}),
        ("/chat/stream", {"messages": MESSAGES}),
    ],
)
ENDING = {
    "runtime": "remote",
    "deprecated": "2026-01-31",
    "sunset": "2026-07-31",
    "lifecycle_link": "https://docs.example/models#demo",
}


@pytest.fixture
def written(tmp_path):
    def write(**models: dict) -> Path:
        path = tmp_path / "models.yaml"
        path.write_text(yaml.safe_dump({"models": models}, sort_keys=False))
        return path

    return write


def serving(serve, path: Path):
    return serve(ScriptedEngine(deltas("ab")), models_file=path)


@PROTOCOLS
def test_an_answer_of_a_deprecated_model_says_so_in_its_headers(serve, written, path, fields):
    answer = serving(serve, written(demo=ENDING)).post(path, json={"model": "demo", **fields})
    assert answer.status_code == 200, answer.text
    assert answer.headers["deprecation"] == "@1769817600"  # date -u -d 2026-01-31 +%s
    assert answer.headers["sunset"] == "Fri, 31 Jul 2026 00:00:00 GMT"
    link = '<https://docs.example/models#demo>; rel="deprecation sunset"; type="text/html"'
    assert answer.headers["link"] == link


def test_the_list_of_models_shows_both_dates(serve, written):
    client = serving(serve, written(demo=ENDING))
    (listed,) = client.get("/v1/models").json()["data"]
    assert (listed["deprecation_date"], listed["sunset"]) == ("2026-01-31", "2026-07-31")
    assert client.get("/v1/models/demo").json() == listed


def test_a_sunset_alone_is_the_deprecation_date_and_a_model_without_dates_has_none(serve, written):
    def listed(**dates: str) -> dict:
        path = written(demo={"runtime": "remote", **dates})
        return serving(serve, path).get("/v1/models").json()["data"][0]

    assert listed(sunset="2099-01-01")["deprecation_date"] == "2099-01-01"
    assert "deprecation_date" not in listed()


def test_the_list_of_models_has_aliases_whose_root_is_the_model(serve, written):
    entry = {"runtime": "remote", "aliases": ["gpt-4o", "best"], "owned_by": "us"}
    gone = {"runtime": "remote", "aliases": ["second"]}
    client = serving(serve, written(demo=entry, gone=gone))
    found = client.get("/v1/models").json()["data"]
    named = [("demo", "demo", "us"), ("gpt-4o", "demo", "us"), ("best", "demo", "us")]
    assert [(one["id"], one["root"], one["owned_by"]) for one in found] == named
    assert [client.get(f"/v1/models/{one['id']}").json() for one in found] == found
    names = ["demo", "gpt-4o", "best"]
    assert client.get("/dynamo/alpha/list-models").json()["completion_models"] == names


@PROTOCOLS
def test_a_model_without_dates_has_no_such_headers(serve, written, path, fields):
    client = serving(serve, written(demo={"runtime": "remote"}))
    answer = client.post(path, json={"model": "demo", **fields})
    assert not {"deprecation", "sunset", "link", "x-fallback-from"} & set(answer.headers)


@PROTOCOLS
def test_a_fallback_answers_under_its_own_name(serve, written, path, fields):
    gone = {"runtime": "remote", "aliases": ["best"], "fallback": "demo"}
    client = serving(serve, written(gone=gone, demo={"runtime": "remote"}))
    answer = client.post(path, json={"model": "best", **fields})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-fallback-from"] == "best"
    named = {"demo"} if path != "/chat/stream" else set()  # whose lines name no model
    assert set(re.findall(r'"model": ?"(\w+)"', answer.text)) == named


def test_a_model_without_a_fallback_is_still_unknown_where_triton_has_not_loaded_it(serve, written):
    client = serving(serve, written(gone={"runtime": "remote"}, demo={"runtime": "remote"}))
    answer = client.post("/v1/chat/completions", json={"model": "gone", "messages": MESSAGES})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 5}),
        ("/v1/embeddings", {"input": "Hi"}),
        ("/tokenize", {"prompt": "Hi"}),
    ],
)
def test_where_models_may_be_at_zero_one_that_was_never_seen_can_be_asked_for_again(
    serve, written, path, fields
):
    file = written(gone={"runtime": "remote"}, demo={"runtime": "remote"})
    client = serve(ScriptedEngine(), models_file=file, hold_timeout_s=60.0)
    answer = client.post(path, json={"model": "gone", **fields})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "true")
    assert int(answer.headers["retry-after"]) > 0
    assert "no server has had it since this proxy started" in answer.text


def test_a_changed_file_changes_what_callers_see_and_an_invalid_one_does_not(serve, written):
    client = serving(serve, path := written(demo={"runtime": "remote", "aliases": ["first"]}))
    reload = client.app.state.policy_watch.reload
    written(demo={"runtime": "remote", "aliases": ["second"], **ENDING})
    assert client.portal.call(reload)
    body = {"messages": MESSAGES}
    answer = client.post("/v1/chat/completions", json={"model": "second", **body})
    assert (answer.status_code, "sunset" in answer.headers) == (200, True)
    assert client.post("/v1/chat/completions", json={"model": "first", **body}).status_code == 404
    assert "proxy_models_file_valid 1.0" in client.get("/metrics").text
    path.write_text("models: {demo: {runtime: remote, alias: [third]}}")
    assert not client.portal.call(reload)
    answer = client.post("/v1/chat/completions", json={"model": "second", **body})
    assert answer.status_code == 200
    assert "proxy_models_file_valid 0.0" in client.get("/metrics").text
    concerns = ["models.yaml was rejected, and what it said before is in force"]
    assert client.get("/health/ready").json() == {"status": "ready", "concerns": concerns}
