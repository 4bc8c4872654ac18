"""POST /v1/rerank and /v1/score: forms of the bodies and answers, and what is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.model import CAPABILITIES, Adopted, Kind, Pooling
from tests.api.formats import error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine

NAMES = {"inputs": {}, "outputs": {}, "has_batches": True, "is_decoupled": False}
OWN = Adopted(kind=Kind.EMBEDDING, **NAMES)
POOLING = Pooling(is_cross_encoder=False, width=4, dimensions=(2, 3))
EMBEDDER = FixedCatalog(
    facts=replace(FACTS, adopted=OWN, pooling=POOLING, chat_template=None),
    capabilities=frozenset({"embeddings", "scores", "limits"}),
)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


def rerank(client, documents, **fields):
    body = {"model": "demo", "query": "ask", "documents": documents, **fields}
    return client.post("/v1/rerank", json=body)


def score(client, **fields):
    return client.post("/v1/score", json={"model": "demo", **fields})


def test_documents_come_in_the_order_of_their_scores(serve, engine):
    body = rerank(serve(engine, EMBEDDER), ["one", {"text": "longest"}, "four"]).json()
    assert body["id"].startswith("rerank-")
    assert body["model"] == "demo"
    assert body["results"] == [
        {"index": 1, "relevance_score": 7, "document": {"text": "longest"}},
        {"index": 2, "relevance_score": 4, "document": {"text": "four"}},
        {"index": 0, "relevance_score": 3, "document": {"text": "one"}},
    ]
    assert body["usage"] == {"prompt_tokens": 9, "total_tokens": 9}


@pytest.mark.parametrize(("top_n", "kept"), [(1, [1]), (2, [1, 2]), (9, [1, 2, 0]), (0, [1, 2, 0])])
def test_only_the_best_are_returned(serve, engine, top_n, kept):
    client = serve(engine, EMBEDDER)
    body = rerank(client, ["1", "333", "22"], top_n=top_n, return_documents=False).json()
    assert [one["index"] for one in body["results"]] == kept
    assert all(one.keys() == {"index", "relevance_score"} for one in body["results"])


@pytest.mark.parametrize(
    ("fields", "pairs"),
    [
        ({"text_1": "a", "text_2": "b"}, [("a", "b")]),
        ({"text_1": "a", "text_2": ["b", "cc"]}, [("a", "b"), ("a", "cc")]),
        ({"text_1": ["a", "d"], "text_2": ["b", "cc"]}, [("a", "b"), ("d", "cc")]),
        ({"queries": ["a"], "documents": ["b", "cc"]}, [("a", "b"), ("a", "cc")]),
    ],
)
def test_each_pair_has_a_score(serve, engine, fields, pairs):
    body = score(serve(engine, EMBEDDER), **fields, user="jo").json()
    assert (body["object"], body["id"][:6]) == ("list", "score-")
    assert body["data"] == [
        {"index": at, "object": "score", "score": len(pair[1])} for at, pair in enumerate(pairs)
    ]
    (sent,) = engine.requests
    assert [(one.text, one.pair) for one in sent.batch] == pairs


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "text_1"),
        ({"text_1": "a"}, "text_2"),
        ({"documents": "a"}, "queries"),
        ({"text_1": "a", "documents": "b"}, "queries"),
        ({"text_1": "a", "text_2": "b", "queries": "a", "documents": "b"}, "text_1"),
        ({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ({"queries": ["a", "b"], "documents": "a"}, "queries"),
        ({"text_1": "", "text_2": "b"}, "text_1"),
        ({"text_1": "a", "text_2": []}, "text_2"),
        ({"text_1": "a", "text_2": ["b", ""]}, "text_2[1]"),
        ({"text_1": "a", "text_2": ["b"] * 2_049}, "text_2"),
        ({"text_1": [1], "text_2": ["b"]}, "text_1[0]"),
        ({"data_1": "a", "data_2": "b"}, "data_1"),
        ({"text_1": "a", "text_2": "b", "truncate_prompt_tokens": 3}, "truncate_prompt_tokens"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_name(idle, fields, param):
    response = score(idle, **fields)
    assert (response.status_code, error_of(response)["param"]) == (400, param)


@pytest.mark.parametrize(
    ("documents", "fields", "param"),
    [
        ([], {}, "documents"),
        ("a", {}, "documents"),
        (["a", ""], {}, "documents[1]"),
        (["a", 7], {}, "documents[1]"),
        ([{"text": ""}], {}, "documents[0].text"),
        ([{"title": "b"}], {}, "documents[0].text"),
        ([["a"]], {}, "documents[0]"),
        (["a"] * 2_049, {}, "documents"),
        (["a"], {"query": ""}, "query"),
        (["a"], {"top_n": -1}, "top_n"),
        (["a"], {"rank_fields": ["text"]}, "rank_fields"),
        (["a"], {"max_tokens_per_doc": 3}, "max_tokens_per_doc"),
        (["a"], {"return_documents": "no"}, "return_documents"),
    ],
)
def test_what_cannot_be_ranked_is_refused_by_name(idle, documents, fields, param):
    response = rerank(idle, documents, **fields)
    assert (response.status_code, error_of(response)["param"]) == (400, param)


def test_a_query_that_is_sent_with_each_document_is_bounded(serve, engine):
    client = serve(engine, EMBEDDER)
    response = rerank(client, ["a"] * 2_000, query="q" * 9_000)
    assert (response.status_code, error_of(response)["param"]) == (400, "documents")
    assert "at most 16000000" in error_of(response)["message"]
    assert not engine.requests


def test_inputs_go_in_calls_of_several_two_at_once(serve):
    engine = ScriptedEngine(pause_s=0.001)
    texts = [f"{'x' * (1 + at % 50)}" for at in range(100)]
    body = serve(engine, EMBEDDER).post("/v1/embeddings", json={"model": "demo", "input": texts})
    assert [one["embedding"][0] for one in body.json()["data"]] == [len(one) for one in texts]
    assert [len(one.batch) for one in engine.requests] == [16] * 6 + [4]
    assert engine.most_embedding == 2


def test_long_inputs_go_in_smaller_calls(serve, engine):
    texts = ["x" * 100_000] * 5
    answer = serve(engine, EMBEDDER).post("/v1/embeddings", json={"model": "demo", "input": texts})
    assert answer.status_code == 200
    assert [len(one.batch) for one in engine.requests] == [2, 2, 1]


class Refusing(ScriptedEngine):
    """Refuses the last input of each call that has a long one."""

    async def generate(self, request):
        if any(len(one.text) > 1 for one in request.batch):
            at = len(request.batch) - 1
            code = ErrorCode.CONTEXT_LENGTH_EXCEEDED
            raise InvalidRequest("long", code=code, param=f"prompt[{at}]")
        async for delta in super().generate(request):
            yield delta


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("embeddings", {"input": ["a"] * 20 + ["long"]}, "input[20]"),
        ("embeddings", {"input": "long"}, "input"),
        ("rerank", {"query": "long", "documents": ["a"]}, "documents[0]"),
        ("score", {"text_1": "long", "text_2": ["a", "b"]}, "text_2[1]"),
        ("score", {"queries": "long", "documents": ["a", "b"]}, "documents[1]"),
    ],
)
def test_an_input_that_the_model_refuses_is_named(serve, path, fields, param):
    client = serve(Refusing(), EMBEDDER)
    response = client.post(f"/v1/{path}", json={"model": "demo", **fields})
    code, found = (error_of(response)[name] for name in ("code", "param"))
    assert (response.status_code, code, found) == (400, "context_length_exceeded", param)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("completions", {"prompt": "a"}),
        ("chat/completions/render", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_a_model_that_embeds_does_not_generate(serve, engine, path, fields):
    client = serve(engine, EMBEDDER)
    response = client.post(f"/v1/{path}", json={"model": "demo", **fields})
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "unsupported_parameter")
    assert error["param"] == "model"
    assert "send texts to /v1/embeddings" in error["message"]
    assert not engine.requests


@pytest.mark.parametrize(
    ("given", "fields", "param", "words"),
    [
        ("a", {"dimensions": 5}, "dimensions", "can have 2, 3, 4."),
        ("a", {"dimensions": 1}, "dimensions", "can have 2, 3, 4."),
        ([0] * 5_000, {}, "input", "context length is 128 tokens, and an input has 5000"),
        ([[1], [300]], {}, "input", "outside the vocabulary of 256"),
    ],
)
def test_what_the_model_cannot_embed_is_refused_before_it_is_sent(
    serve, engine, given, fields, param, words
):
    client = serve(engine, EMBEDDER)
    response = client.post("/v1/embeddings", json={"model": "demo", "input": given, **fields})
    assert (response.status_code, error_of(response)["param"]) == (400, param)
    assert words in error_of(response)["message"]
    assert not engine.requests


def test_what_a_model_can_do_is_listed(serve, engine):
    client = serve(engine, EMBEDDER)
    (model,) = client.get("/v1/models").json()["data"]
    assert model["pooling"] == {
        "routes": ["/v1/embeddings", "/v1/rerank", "/v1/score"],
        "dimensions": [4, 3, 2],
    }
    assert model["max_output_tokens"] is None
    lists = client.get("/dynamo/alpha/list-models").json()
    assert lists == {"chat_completion_models": [], "completion_models": []}


@pytest.mark.parametrize("lacks", ["embeddings", "scores"])
def test_what_a_model_lacks_is_refused_by_name(serve, engine, lacks):
    client = serve(engine, FixedCatalog(capabilities=CAPABILITIES - {lacks}))
    embeds = client.post("/v1/embeddings", json={"model": "demo", "input": "a"})
    scores = rerank(client, ["a"])
    refused, taken = (embeds, scores) if lacks == "embeddings" else (scores, embeds)
    assert (refused.status_code, error_of(refused)["param"]) == (400, "model")
    assert taken.status_code == 200
