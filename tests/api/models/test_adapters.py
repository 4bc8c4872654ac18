"""A LoRA adapter as a model of its own: asked for, listed, counted and refused by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from proxy.domain.model import CAPABILITIES
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

FACTS_OF_TWO = replace(FACTS, adapters=("sql", "poet"))
MESSAGES = [{"role": "user", "content": "hi"}]
WAYS = pytest.mark.parametrize(
    ("path", "fields"),
    [("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/completions", {"prompt": "hi"})],
)


@pytest.fixture
def engine():
    return ScriptedEngine(deltas("ab"))


@pytest.fixture
def client(serve, engine):
    return serve(engine, FixedCatalog(facts=FACTS_OF_TWO))


@WAYS
@pytest.mark.parametrize("stream", [False, True])
def test_it_is_asked_for_by_its_name_and_its_answer_says_so(client, engine, path, fields, stream):
    answer = client.post(path, json={"model": "sql", "stream": stream, **fields})
    assert answer.status_code == 200, answer.text
    assert '"model":"sql"' in answer.text.replace(": ", ":")
    (asked,) = engine.requests
    card = asked.model
    assert (card.name, card.parent, card.triton_model) == ("sql", "demo", "demo")


@WAYS
def test_the_model_itself_answers_under_its_own_name(client, engine, path, fields):
    client.post(path, json={"model": "demo", **fields}).raise_for_status()
    assert engine.requests[0].model.parent is None


def test_it_is_listed_behind_its_model_with_parent_and_root(client):
    listed = client.get("/v1/models").json()["data"]
    assert [(one["id"], one["root"], one["parent"]) for one in listed] == [
        ("demo", "demo", None),
        ("sql", "demo", "demo"),
        ("poet", "demo", "demo"),
    ]
    assert client.get("/v1/models/sql").json() == listed[1]
    assert listed[1]["context_length"] == listed[0]["context_length"]


def test_an_alias_has_its_models_root(serve, tmp_path, engine):
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump({"models": {"demo": {"weights": "w", "aliases": ["gpt-4o"]}}}))
    client = serve(engine, FixedCatalog(facts=FACTS_OF_TWO), models_file=path)
    found = client.get("/v1/models/gpt-4o").json()
    assert (found["id"], found["root"], found["parent"]) == ("gpt-4o", "demo", None)


def test_another_name_is_not_found(client):
    refused = client.post("/v1/completions", json={"model": "nope", "prompt": "hi"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    assert client.get("/v1/models/nope").status_code == 404


def test_its_requests_are_counted_under_its_own_name(client):
    client.post("/v1/completions", json={"model": "sql", "prompt": "hi"}).raise_for_status()
    lines = client.get("/metrics").text.splitlines()
    assert 'proxy_requests_total{model="sql",outcome="stop"} 1.0' in lines
    assert not [line for line in lines if 'proxy_requests_total{model="demo"' in line]


@pytest.mark.parametrize("field", ["lora_request", "lora_path"])
def test_the_fields_of_others_say_where_the_name_goes(client, field):
    body = {"model": "demo", "prompt": "hi", field: "sql"}
    error = client.post("/v1/completions", json=body).json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", field)
    assert "in 'model', as /v1/models lists it" in error["message"]


def test_a_triton_whose_ensemble_cannot_carry_the_name_is_not_asked(serve, engine):
    catalog = FixedCatalog(facts=FACTS_OF_TWO, capabilities=CAPABILITIES - {"lora"})
    refused = serve(engine, catalog).post("/v1/completions", json={"model": "sql", "prompt": "hi"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "lora")
    assert not engine.requests
