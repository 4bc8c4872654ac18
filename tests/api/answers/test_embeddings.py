"""POST /v1/embeddings: forms of input and answer, limits, usage, and what is refused by name."""

from __future__ import annotations

import asyncio
import base64
import struct

import pytest
from openai import OpenAI

from proxy.domain.errors import ErrorCode, InvalidRequest, ModelUnavailable
from proxy.domain.identity import NO_LIMITS, Limits, Scope
from proxy.domain.model import CAPABILITIES
from proxy.generation import embeddings
from tests.api.formats import error_of
from tests.doubles.engine import FixedCatalog, ScriptedEngine
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.doubles.usage import KeptUsage
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started

PATH = "/v1/embeddings"


def ask(client, given, **fields):
    return client.post(PATH, json={"model": "demo", "input": given, **fields})


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ("hello", [5]),
        (["hello", "é", "x"], [5, 2, 1]),
        ([1, 2, 3], [3]),
        ([[1, 2], [3]], [2, 1]),
        ("x" * 100, [100]),
    ],
)
def test_each_input_gets_a_vector_in_its_order(serve, engine, given, sizes):
    body = ask(serve(engine), given).json()
    assert body["object"] == "list"
    assert body["model"] == "demo"
    assert [one["index"] for one in body["data"]] == [*range(len(sizes))]
    assert [one["embedding"] for one in body["data"]] == [[size, 0.25, 0, 0] for size in sizes]
    assert body["usage"] == {"prompt_tokens": sum(sizes), "total_tokens": sum(sizes)}
    assert len({request.id for request in engine.requests}) == len(sizes)


def test_base64_is_of_32_bit_floats(serve, engine):
    (only,) = ask(serve(engine), "hello", encoding_format="base64", dimensions=3).json()["data"]
    assert struct.unpack("<3f", base64.b64decode(only["embedding"])) == (5, 0.25, 0)
    assert engine.requests[0].embeds == 3


@pytest.mark.parametrize("form", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_openais_sdk_reads_the_answer(serve, engine, form):
    client = serve(engine)
    sdk = OpenAI(base_url=f"{client.base_url}/v1", api_key="x", http_client=client)
    answer = sdk.embeddings.create(model="demo", input=["hello", "you"], **form)
    first = answer.data[0].embedding
    if isinstance(first, str):
        first = struct.unpack("<4f", base64.b64decode(first))
    assert [*first] == [5, 0.25, 0, 0]
    assert answer.usage.prompt_tokens == 8


def test_eight_streams_of_a_request_run_at_once_and_no_more(serve):
    engine = ScriptedEngine(pause_s=0.005)
    body = ask(serve(engine), [f"{'x' * (1 + at % 50)}" for at in range(100)]).json()
    assert [one["embedding"][0] for one in body["data"]] == [1 + at % 50 for at in range(100)]
    assert engine.most_embedding == 8


@pytest.mark.parametrize(
    ("given", "fields", "param", "words"),
    [
        ("", {}, "input", "must not be empty"),
        (["a", ""], {}, "input[1]", "must not be empty"),
        ([], {}, "input", ""),
        ([[]], {}, "input[0]", ""),
        ([[1], "a"], {}, "input[1]", ""),
        ([-1], {}, "input[0]", ""),
        ([300], {}, "input", "outside the vocabulary of 256"),
        (["a"] * 2049, {}, "input", "at most 2048"),
        ("a", {"dimensions": 0}, "dimensions", ""),
        ("a", {"dimensions": 70_000}, "dimensions", ""),
        ("a", {"encoding_format": "int8"}, "encoding_format", ""),
        ("a", {"truncate_prompt_tokens": 3}, "truncate_prompt_tokens", ""),
        (None, {}, "input", ""),
    ],
)
def test_what_cannot_be_embedded_is_refused_by_name(idle, given, fields, param, words):
    response = ask(idle, given, **fields)
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, param)
    assert words in error["message"]
    assert len(error["message"]) < 1000


def test_2048_inputs_are_allowed(serve, engine):
    assert len(ask(serve(engine), ["a"] * 2048).json()["data"]) == 2048


def test_a_model_that_cannot_embed_is_named(serve, engine):
    client = serve(engine, FixedCatalog(capabilities=CAPABILITIES - {"embeddings"}))
    error = error_of(ask(client, "a"))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "model")
    assert "'demo' has no embeddings" in error["message"]
    assert not engine.requests
    assert error_of(ask(client, "a", model="nobody"))["code"] == "model_not_found"
    assert "embeddings" not in client.get("/v1/models/demo").json()["capabilities"]


@pytest.mark.parametrize(
    ("raised", "status", "param"),
    [
        (ModelUnavailable("away"), 503, None),
        (
            InvalidRequest("long", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="prompt"),
            400,
            "input",
        ),
        (
            InvalidRequest("no", code=ErrorCode.UNSUPPORTED_PARAMETER, param="dimensions"),
            400,
            "dimensions",
        ),
        (RuntimeError("secret"), 500, None),
    ],
)
def test_an_engines_error_ends_the_other_calls(serve, raised, status, param):
    engine = ScriptedEngine(error=raised)
    response = ask(serve(engine, max_resends=0), ["a"] * 100)
    assert (response.status_code, error_of(response)["param"]) == (status, param)
    assert "secret" not in response.text
    assert len(engine.requests) <= 16, "those that began until the first failed"
    assert not engine.embedding


def test_the_numbers_of_one_answer_are_bounded(serve, engine, monkeypatch):
    monkeypatch.setattr(embeddings, "MOST_NUMBERS", 399)
    client = serve(engine)
    assert len(ask(client, ["a"] * 99).json()["data"]) == 99
    engine.requests.clear()
    error = error_of(ask(client, ["a"] * 100))
    assert (error["code"], error["param"]) == ("invalid_parameter", "input")
    assert "400 numbers: at most 399" in error["message"]
    assert len(engine.requests) <= 16


@pytest.fixture
def tenant(serve, engine):
    """start(limits, scopes) -> a client with a key."""

    def start(limits: Limits = NO_LIMITS, scopes: tuple[Scope, ...] = (Scope.EMBEDDINGS,)):
        keys = KeysInMemory()
        keys.add_tenant("acme", limits=limits)
        client = serve(engine, keys=keys, key_pepper=PEPPER)
        key = keys.add("own1", tenant="acme", scopes=frozenset(scopes))
        client.headers["authorization"] = f"Bearer {key}"
        return client

    return start


def test_a_key_needs_the_scope(tenant, engine):
    client = tenant(scopes=(Scope.CHAT, Scope.COMPLETIONS, Scope.TOKENS))
    response = ask(client, "a")
    assert (response.status_code, error_of(response)["code"]) == (403, "insufficient_scope")
    assert not engine.requests


def test_limits_count_requests_and_the_prompts_tokens(tenant, engine):
    client = tenant(Limits(input_tokens_per_minute=100, output_tokens_per_minute=1))
    first = ask(client, ["x" * 30, "y" * 30])
    assert first.status_code == 200
    second = ask(client, "x" * 60)
    assert (second.status_code, error_of(second)["code"]) == (429, "rate_limit_exceeded")
    assert ask(client, "x" * 20).status_code == 200, "no more than the tokens was charged"
    assert len(engine.requests) == 3


def test_metrics_log_and_usage_have_the_request(serve, engine, capsys):
    usage = KeptUsage()
    client = serve(engine, usage=usage)
    assert ask(client, ["xyz", "de"], user="jo").status_code == 200
    metrics = client.get("/metrics").text
    assert 'proxy_requests_total{model="demo",outcome="stop"} 1.0' in metrics
    assert 'proxy_prompt_tokens_total{model="demo"} 5.0' in metrics
    assert 'proxy_completion_tokens_total{model="demo"} 0.0' in metrics
    (line,) = (one for one in capsys.readouterr().out.splitlines() if PATH in one)
    assert "embd-" in line
    assert "xyz" not in line  # ids are hexadecimal
    (row,) = usage.rows
    assert (row.prompt_tokens, row.output_tokens, row.requests, row.errors) == (5, 0, 1, 0)


@pytest.mark.anyio
async def test_a_client_that_leaves_ends_the_calls():
    engine = ScriptedEngine(hangs=True)
    async with started(application(engine)) as app:
        asked = Call(app, PATH, {"model": "demo", "input": ["a"] * 20}, {})
        while engine.embedding < 8:  # noqa: ASYNC110 - in a few turns of the loop
            await asyncio.sleep(0)
        await asked.disconnect()
    assert engine.embedding == 0
    assert len(engine.requests) == 8


def test_a_models_prompt_limit_goes_with_the_request(serve, engine):
    assert ask(serve(engine, max_prompt_tokens=9), "a").status_code == 200
    assert engine.requests[0].prompt_cap == 9


class HalfLost(ScriptedEngine):
    """Of two endpoints the first is lost with each request, `others` says whether both are."""

    others = True

    def has_another(self, request):
        assert request.avoids == {"a:1"}
        return self.others

    async def generate(self, request):
        if not request.avoids:
            error = ModelUnavailable("away")
            error.endpoint = "a:1"
            raise error
        async for delta in super().generate(request):
            yield delta


def test_a_call_that_lost_its_endpoint_is_sent_to_another(serve):
    engine = HalfLost()
    answer = ask(serve(engine), ["a", "bc"])
    assert answer.json()["usage"]["prompt_tokens"] == 3
    assert answer.headers["x-resends"] == "2"
    engine.others = False
    assert ask(serve(engine, max_resends=1), "a").status_code == 503


class Lost(ScriptedEngine):
    """The only endpoint is lost with the first calls, as many as `lost` says, and comes back."""

    async def generate(self, request):
        if self.lost:
            self.lost -= 1
            raise ModelUnavailable("away")
        async for delta in super().generate(request):
            yield delta


@pytest.mark.parametrize(("lost", "status"), [(1, 200), (2, 200), (3, 503)])
def test_a_call_that_lost_the_only_endpoint_is_sent_again_when_it_is_back(serve, lost, status):
    engine = Lost(lost=lost)
    answer = ask(serve(engine, max_resends=2), "abc")
    assert answer.status_code == status
    if status == 200:
        assert answer.headers["x-resends"] == str(lost)
        (sent,) = engine.requests
        assert sent.id.endswith(f"-resent{lost}"), "engines remember the ids of stopped requests"
    else:
        assert answer.json()["error"]["code"] == "model_unavailable"
