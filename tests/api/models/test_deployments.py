"""Where requests of one public model go: weights, canaries, sticky callers, shadows, builds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from proxy.domain.engine import EngineRequest
from proxy.domain.model import CAPABILITIES, LoadedModel, ModelCard
from proxy.generation.shadow import LOWEST_PRIORITY
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

HI = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
BLUE, GREEN = {"name": "blue", "model": "v1"}, {"name": "green", "model": "v2"}


class TwoVersions(FixedCatalog):
    """Triton models `v1` and `v2`. away: those that no endpoint serves now."""

    def __init__(self, without: Collection[str] = ()) -> None:
        super().__init__()
        self.away: set[str] = set()
        self.without = frozenset(without)  # of v1

    async def load(self) -> tuple[LoadedModel, ...]:
        older = replace(self.facts, created=FACTS.created - 1)
        return (
            LoadedModel(name="v1", facts=older, capabilities=CAPABILITIES - self.without),
            LoadedModel(name="v2", facts=self.facts),
        )

    def is_available(self, card: ModelCard) -> bool:
        return card.triton_model not in self.away


@pytest.fixture
def chat(serve, tmp_path: Path):
    """chat(entry, catalog) -> a client, and the engine behind it."""

    def start(entry: dict, catalog: TwoVersions | None = None):
        path = tmp_path / "models.yaml"
        path.write_text(yaml.safe_dump({"models": {"chat": entry}}))
        engine = ScriptedEngine(deltas("ab"))
        return serve(engine, catalog=catalog or TwoVersions(), models_file=path), engine

    return start


def asked(client, engine: ScriptedEngine, headers: dict | None = None, **fields) -> str:
    """Sends a request; returns the Triton model that it went to."""
    answer = client.post("/v1/chat/completions", json={**HI, **fields}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "chat"
    return sent(engine)[-1].model.triton_model


def sent(engine: ScriptedEngine) -> list[EngineRequest]:
    return [one for one in engine.requests if not one.id.endswith("-shadow")]


def test_requests_go_where_the_weights_say(chat):
    blue = {**BLUE, "weight": 3}
    client, engine = chat({"deployments": [blue, {**GREEN, "weight": 1}]})
    found = [asked(client, engine) for _ in range(200)]
    assert 110 < found.count("v1") < 185, "150 of 200 are expected; 5 standard deviations are 31"
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["chat"]


def test_a_header_chooses_the_canary(chat):
    green = {**GREEN, "canary": {"header": {"name": "X-Canary", "value": "yes"}}}
    client, engine = chat({"deployments": [BLUE, green]})
    assert asked(client, engine) == "v1"
    assert asked(client, engine, {"x-canary": "yes"}) == "v2"
    assert asked(client, engine, {"x-canary": "no"}) == "v1"


def test_a_user_and_a_conversation_stay_where_they_are(chat):
    for sticky, fields in (("user", {"user": "u{}"}), ("conversation", {})):
        client, engine = chat({"deployments": [BLUE, GREEN], "sticky": sticky})
        homes = set()
        for number in range(12):
            own = {name: value.format(number) for name, value in fields.items()}
            turns = [{"role": "user", "content": f"hi, I am number {number}"}]
            first = asked(client, engine, messages=turns, **own)
            turns += [{"role": "assistant", "content": "ab"}, {"role": "user", "content": "and?"}]
            assert asked(client, engine, messages=turns, **own) == first
            homes.add(first)
        assert homes == {"v1", "v2"}


def test_a_deployment_without_an_endpoint_gets_nothing(chat):
    catalog = TwoVersions()
    client, engine = chat({"deployments": [BLUE, GREEN]}, catalog)
    catalog.away = {"v1"}
    assert {asked(client, engine) for _ in range(10)} == {"v2"}
    catalog.away = {"v1", "v2"}
    refused = client.post("/v1/chat/completions", json=HI)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_unavailable")


def test_a_standby_gets_requests_only_while_its_sibling_is_away(chat):
    catalog = TwoVersions(without=["seed"])
    client, engine = chat({"deployments": [BLUE, {**GREEN, "standby": True}]}, catalog)
    body = {**HI, "seed": 1}
    assert {asked(client, engine) for _ in range(10)} == {"v1"}
    refused = client.post("/v1/chat/completions", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "seed")
    catalog.away = {"v1"}
    assert {asked(client, engine) for _ in range(10)} == {"v2"}
    assert client.post("/v1/chat/completions", json=body).status_code == 200
    catalog.away = set()
    assert {asked(client, engine) for _ in range(10)} == {"v1"}


def test_a_model_that_no_endpoint_serves_is_refused_at_once_and_others_are_not(serve):
    catalog = TwoVersions()
    catalog.away = {"v1"}
    client = serve(ScriptedEngine(deltas("ab")), catalog=catalog)
    refused = client.post("/v1/chat/completions", json={**HI, "model": "v1"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_unavailable")
    assert client.post("/v1/chat/completions", json={**HI, "model": "v2"}).status_code == 200


def test_a_parameter_that_one_version_lacks_goes_to_the_other(chat):
    client, engine = chat({"deployments": [BLUE, GREEN]}, TwoVersions(without=["seed"]))
    assert {asked(client, engine, seed=1) for _ in range(20)} == {"v2"}
    assert {asked(client, engine) for _ in range(40)} == {"v1", "v2"}


def test_a_shadow_gets_copies_and_the_caller_sees_none_of_it(chat):
    green = {**GREEN, "weight": 0}
    client, engine = chat({"deployments": [BLUE, green], "shadow": {"deployment": "green"}})
    assert asked(client, engine) == "v1"
    counted: list[str] = []
    while not counted:  # the caller does not wait for the copy
        lines = client.get("/metrics").text.splitlines()
        counted = [line for line in lines if "proxy_shadow_requests_total{" in line]
    copies = [one for one in engine.requests if one.id.endswith("-shadow")]
    assert [(one.model.triton_model, one.model.deployment) for one in copies] == [("v2", "green")]
    assert len(counted) == 1
    assert 'outcome="compared"' in counted[0]


def test_a_copy_has_the_lowest_priority_where_its_engine_takes_one(chat):
    for main, shadow, priority in ((BLUE, GREEN, LOWEST_PRIORITY), (GREEN, BLUE, None)):
        entry = {"deployments": [main, {**shadow, "weight": 0}]}
        entry["shadow"] = {"deployment": shadow["name"]}
        client, engine = chat(entry, TwoVersions(without=["priority"]))
        asked(client, engine)
        while "proxy_shadow_requests_total{" not in client.get("/metrics").text:
            pass  # the caller does not wait for the copy
        (copy,) = (one for one in engine.requests if one.id.endswith("-shadow"))
        assert (copy.model.triton_model, copy.priority) == (shadow["model"], priority)


def test_a_version_that_triton_does_not_have_is_not_served(chat):
    client, engine = chat({"deployments": [{**BLUE, "version": 7}, {**GREEN, "version": 1}]})
    assert {asked(client, engine) for _ in range(10)} == {"v2"}
    assert sent(engine)[-1].model.version == 1
