"""The operator's limits on one request, on every route; the lower of two holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from proxy.domain.model import CAPABILITIES, LoadedModel
from tests.api.conftest import Serve
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
CHAT_BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
TEXT_BODY = {"model": "demo", "prompt": "hi"}
LIMITS = {"max_output_tokens": 10, "max_prompt_tokens": 40}
COUNTS = {"n": 2, "best_of": 3}


def models_file(folder: Path, **limits: int) -> Path:
    path = folder / "limits.yaml"
    path.write_text(yaml.safe_dump({"models": {"demo": {"weights": "w", "limits": limits}}}))
    return path


@pytest.fixture
def serve(serve: Serve, tmp_path: Path) -> Serve:
    """As `serve`; with LIMITS, models.yaml has COUNTS."""

    def start(*args: Any, **settings: Any) -> TestClient:
        if settings.keys() >= LIMITS.keys() and "models_file" not in settings:
            settings["models_file"] = models_file(tmp_path, **COUNTS)
        return serve(*args, **settings)

    return start


def error_of(response) -> dict[str, Any]:
    assert response.status_code == 400, response.text
    return response.json()["error"]


@pytest.mark.parametrize(
    ("path", "param", "given", "most"),
    [
        (CHAT, "max_tokens", 11, 10),
        (CHAT, "max_completion_tokens", 11, 10),
        (CHAT, "min_tokens", 11, 10),
        (CHAT, "n", 3, 2),
        (TEXT, "max_tokens", 11, 10),
        (TEXT, "min_tokens", 17, 10),
        (TEXT, "n", 3, 2),
        (TEXT, "best_of", 4, 3),
    ],
)
def test_more_than_a_limit_is_refused_with_field_value_and_limit(serve, path, param, given, most):
    engine = ScriptedEngine(deltas("a"))
    body = CHAT_BODY if path == CHAT else TEXT_BODY
    error = error_of(serve(engine, **LIMITS).post(path, json={**body, param: given}))
    assert (error["param"], error["code"]) == (param, "invalid_parameter")
    assert error["message"].startswith(f"Invalid value for '{param}': {given}. ")
    assert f"at most {most} for" in error["message"]
    assert not engine.requests


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"max_tokens": 10, "n": 2, "min_tokens": 10}),
        (TEXT, {"max_tokens": 10, "n": 2, "best_of": 3}),
    ],
)
def test_what_the_limits_allow_passes_unchanged(serve, path, fields):
    engine = ScriptedEngine(deltas("a"))
    body = CHAT_BODY if path == CHAT else TEXT_BODY
    response = serve(engine, **LIMITS).post(path, json={**body, **fields})
    assert response.status_code == 200, response.text
    assert {(asked.max_tokens, asked.token_cap) for asked in engine.requests} == {(10, None)}


@pytest.mark.parametrize("path", [CHAT, "/chat/json", "/chat/stream", "/chat/sse"])
def test_without_max_tokens_the_tokenizer_cuts_the_default(serve, path):
    engine = ScriptedEngine(deltas("a"))
    assert serve(engine, **LIMITS).post(path, json=CHAT_BODY).status_code == 200
    (asked,) = engine.requests
    assert (asked.max_tokens, asked.token_cap, asked.prompt_cap) == (None, 10, 40)


def test_without_limits_nothing_is_sent(serve):
    engine = ScriptedEngine(deltas("a"))
    serve(engine).post(CHAT, json=CHAT_BODY)
    (asked,) = engine.requests
    assert (asked.max_tokens, asked.token_cap, asked.prompt_cap) == (None, None, None)
    assert "limits" not in asked.needed_capabilities


def test_a_socket_obeys_them(serve):
    with serve(ScriptedEngine(), **LIMITS).websocket_connect(f"{CHAT}/ws") as socket:
        socket.send_text(json.dumps({**CHAT_BODY, "max_tokens": 11}))
        assert socket.receive_json()["error"]["param"] == "max_tokens"


def test_a_models_own_time_is_in_force_and_only_lowers_the_setting(serve, tmp_path):
    engine = ScriptedEngine(hangs=True)
    client = serve(engine, models_file=models_file(tmp_path, timeout_s=0.05))
    response = client.post(CHAT, json=CHAT_BODY)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert "longer than 0.05 seconds" in response.text
    assert client.get("/v1/models/demo").json()["limits"]["timeout_s"] == 0.05
    slower = serve(engine, models_file=models_file(tmp_path, timeout_s=60), request_timeout_s=0.06)
    assert "longer than 0.06 seconds" in slower.post(CHAT, json=CHAT_BODY).text
    assert [asked.timeout_s for asked in engine.requests] == [0.05, 0.06]


CLAMP = {**LIMITS, "max_output_tokens_exceeded": "clamp"}
CLAMPED = "x-max-tokens-clamped"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"max_tokens": 11}),
        (CHAT, {"max_completion_tokens": 2**31 - 1, "n": 2}),
        (TEXT, {"max_tokens": 11}),
    ],
)
def test_more_tokens_than_the_limit_are_clamped_where_the_operator_says_so(
    serve, path, fields, stream
):
    engine = ScriptedEngine(deltas("a"))
    body = {**(CHAT_BODY if path == CHAT else TEXT_BODY), **fields, "stream": stream}
    with capture_logs() as lines:
        response = serve(engine, **CLAMP).post(path, json=body)
    assert (response.status_code, response.headers[CLAMPED]) == (200, "10")
    assert {asked.max_tokens for asked in engine.requests} == {10}
    (line,) = (one for one in lines if one["event"] == "request")
    assert line["clamped_max_tokens"] == 10


def test_nothing_else_is_clamped(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, **CLAMP)
    for fields in ({"max_tokens": 10}, {}):
        assert CLAMPED not in client.post(CHAT, json={**CHAT_BODY, **fields}).headers
    assert CLAMPED not in client.post("/chat/json", json=CHAT_BODY).headers
    for fields, param in (({"n": 3}, "n"), ({"min_tokens": 11, "max_tokens": 12}, "min_tokens")):
        assert error_of(client.post(CHAT, json={**CHAT_BODY, **fields}))["param"] == param


def test_a_socket_and_a_rendered_chat_clamp_too(serve):
    engine, body = ScriptedEngine(deltas("a")), {**CHAT_BODY, "max_tokens": 11}
    client = serve(engine, **CLAMP)
    with client.websocket_connect(f"{CHAT}/ws") as socket:
        socket.send_text(json.dumps(body))
        while socket.receive_json() != {"type": "done"}:
            pass
    assert [asked.max_tokens for asked in engine.requests] == [10]
    answer = client.post(f"{CHAT}/render", json=body).json()
    assert (answer["max_tokens"], answer["limited_by"]) == (10, ["max_output_tokens"])


def test_a_rendered_chat_tells_what_sets_its_limit(serve):
    client = serve(ScriptedEngine(), **LIMITS)
    answer = client.post(f"{CHAT}/render", json=CHAT_BODY).json()
    assert (answer["max_tokens"], answer["limited_by"]) == (10, ["max_output_tokens"])
    assert error_of(client.post(f"{CHAT}/render", json={**CHAT_BODY, "n": 3}))["param"] == "n"


def test_tokenize_counts_what_a_generation_would_take(serve):
    client = serve(ScriptedEngine(), **LIMITS)
    assert client.post("/tokenize", json={"prompt": "x" * 39}).json()["count"] == 40
    error = error_of(client.post("/tokenize", json={"prompt": "x" * 40}))
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")


@pytest.mark.parametrize(("mine", "most"), [(5, 5), (20, 10), (None, 10)])
def test_the_lower_of_settings_and_models_yaml_holds(serve, tmp_path, mine, most):
    limits = {} if mine is None else {"max_tokens": mine}
    client = serve(
        ScriptedEngine(deltas("a")), models_file=models_file(tmp_path, **COUNTS, **limits), **LIMITS
    )
    error = error_of(client.post(CHAT, json={**CHAT_BODY, "max_tokens": 11}))
    assert f"at most {most} for" in error["message"]
    model = client.get("/v1/models/demo").json()
    assert model["max_output_tokens"] == model["default_max_tokens"] == most
    own = {"max_tokens": most, "n": 2, "best_of": 3, "prompt_tokens": 40, "timeout_s": None}
    assert model["limits"] == own


def test_models_tell_no_limits_where_there_are_none(serve):
    model = serve(ScriptedEngine()).get("/v1/models/demo").json()
    names = ["max_tokens", "n", "best_of", "prompt_tokens", "timeout_s"]
    assert model["limits"] == dict.fromkeys(names)
    assert (model["max_output_tokens"], model["default_max_tokens"]) == (128, None)
    assert "limits" not in model["capabilities"]


def test_a_model_whose_tokenizer_knows_no_limits_is_not_served_without_them(serve, tmp_path):
    catalog = FixedCatalog(capabilities=CAPABILITIES - {"limits"})
    counts = models_file(tmp_path, **COUNTS)  # these are the proxy's own
    client = serve(ScriptedEngine(), catalog, models_file=counts)
    assert client.get("/health/ready").status_code == 200
    response = serve(ScriptedEngine(), catalog, max_prompt_tokens=40).get("/health/ready")
    assert response.status_code == 503
    assert "limits of a model cannot be enforced" in response.text


class WithAnOldModel(FixedCatalog):
    async def load(self) -> tuple[LoadedModel, ...]:
        (demo,) = await super().load()
        return demo, replace(demo, name="old", capabilities=CAPABILITIES - {"limits"})


def test_a_model_that_cannot_be_limited_stops_no_other_and_readiness_counts_it(serve):
    client = serve(ScriptedEngine(deltas("hi")), WithAnOldModel(), max_prompt_tokens=40)
    ready = client.get("/health/ready")
    said = "models that do not fit models.yaml or the settings: 1"
    assert (ready.status_code, ready.json()["concerns"]) == (200, [said])
    bodies = {name: {"model": name, "prompt": "a"} for name in ("demo", "old")}
    asked = {name: client.post(TEXT, json=body) for name, body in bodies.items()}
    assert {name: one.status_code for name, one in asked.items()} == {"demo": 200, "old": 503}
    assert "limits of a model cannot be enforced" in asked["old"].text
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["demo"]


def test_an_answer_with_log_probabilities_stays_below_the_limit(serve):
    engine = ScriptedEngine(deltas("a"))
    fields = {"logprobs": True, "top_logprobs": 20}
    catalog = FixedCatalog(facts=replace(FACTS, context_length=100_000))
    for most in (10, 50_000):
        serve(engine, catalog, max_output_tokens=most).post(CHAT, json={**CHAT_BODY, **fields})
    first, second = engine.requests
    assert (first.max_tokens, first.token_cap) == (None, 10)
    assert second.max_tokens == 250_000 // 21
