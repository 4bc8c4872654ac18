"""Embedding models and a cross-encoder in a real tritonserver, from OpenAI's SDK."""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openai
import pytest
from tokenizers import Tokenizer

from tests.fixtures import embedding_models
from tests.fixtures.stack import PLAIN, Stack, eventually

TEXTS = ["where is the station", "milk", "bread and milk at noon a b c d e f g"]
EXECUTIONS = re.compile(r'^nv_inference_exec_count\{model="bert"[^}]*\} (\d+)', re.MULTILINE)


@pytest.fixture
def client(embedding_stack: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{embedding_stack.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def vectors(answer: openai.types.CreateEmbeddingResponse) -> np.ndarray:
    return np.array([one.embedding for one in answer.data])


@pytest.mark.parametrize("form", [{}, {"encoding_format": "float"}])
def test_vectors_are_the_references(client, embedding_folders, form):
    answer = client.embeddings.create(model="bert", input=TEXTS, **form)
    expected = embedding_models.reference(embedding_folders / "bert", *TEXTS)
    assert np.abs(vectors(answer) - expected).max() < 1e-4
    tokenizer = Tokenizer.from_file(str(embedding_folders / "bert" / "tokenizer.json"))
    tokenizer.no_truncation()
    assert answer.usage.prompt_tokens == sum(len(tokenizer.encode(one).ids) for one in TEXTS)


def test_base64_and_token_ids_are_the_same_vectors(client, embedding_folders):
    tokenizer = Tokenizer.from_file(str(embedding_folders / "bert" / "tokenizer.json"))
    tokenizer.no_truncation()
    ids = [tokenizer.encode(one).ids for one in TEXTS]
    of_ids = client.embeddings.create(model="bert", input=ids)
    of_one = client.embeddings.create(model="bert", input=ids[1])
    of_texts = client.embeddings.create(model="bert", input=TEXTS, encoding_format="base64")
    packed = np.array([struct.unpack("<16f", b64decode(one.embedding)) for one in of_texts.data])
    assert np.abs(vectors(of_ids) - packed).max() < 1e-5
    assert np.abs(vectors(of_one)[0] - packed[1]).max() < 1e-5
    assert of_ids.usage == of_texts.usage


def test_scores_of_a_cross_encoder_are_the_references(embedding_stack, embedding_folders):
    query, documents = "where is the station", ["milk", "train leaves at noon", "a b"]
    given = {"model": "cross", "query": query, "documents": documents}
    ranked = PLAIN.post(f"{embedding_stack.url}/v1/rerank", json=given).json()["results"]
    pairs = [(query, one) for one in documents]
    expected = embedding_models.reference(embedding_folders / "cross", *pairs)[:, 0]
    found = {one["index"]: one["relevance_score"] for one in ranked}
    assert np.abs([found[at] - expected[at] for at in range(3)]).max() < 1e-4
    assert [one["index"] for one in ranked] == [*np.argsort(-expected)]
    given = {"model": "cross", "text_1": query, "text_2": documents}
    scored = PLAIN.post(f"{embedding_stack.url}/v1/score", json=given).json()["data"]
    assert np.abs([one["score"] for one in scored] - expected).max() < 1e-4


def test_the_demos_embeddings_find_what_is_meant(client, embedding_stack):
    question = "How do I reset my password?"
    answers = ["The cafeteria closes at noon", "To change your password, open the settings page"]
    found = vectors(client.embeddings.create(model="demo-embedding", input=[question, *answers]))
    assert found.shape == (3, 256)
    assert found[0] @ found[2] > 0.4 > 0.2 > found[0] @ found[1]
    given = {"model": "demo-embedding", "query": question, "documents": answers, "top_n": 1}
    (best,) = PLAIN.post(f"{embedding_stack.url}/v1/rerank", json=given).json()["results"]
    assert best["document"]["text"] == answers[1]
    assert best["relevance_score"] == pytest.approx(found[0] @ found[2], abs=1e-6)
    short = client.embeddings.create(model="demo-embedding", input=question, dimensions=64)
    kept = found[0, :64] / np.linalg.norm(found[0, :64])
    assert np.abs(vectors(short)[0] - kept).max() < 1e-6


@pytest.mark.parametrize(
    ("path", "model", "fields", "code", "param"),
    [
        ("embeddings", "cross", {"input": "a"}, "unsupported_parameter", "model"),
        ("embeddings", "demo", {"input": "a"}, "unsupported_parameter", "model"),
        ("score", "demo", {"text_1": "a", "text_2": "b"}, "unsupported_parameter", "model"),
        ("completions", "bert", {"prompt": "a"}, "unsupported_parameter", "model"),
        ("embeddings", "bert", {"input": "a", "dimensions": 8}, "unsupported_parameter", None),
        ("embeddings", "bert", {"input": ["a", "b " * 40]}, "context_length_exceeded", "input[1]"),
        ("embeddings", "static", {"input": "a b c d e f g"}, "context_length_exceeded", "input"),
        ("embeddings", "static", {"input": "  "}, "invalid_parameter", "input"),
        ("embeddings", "bert", {"input": [[1], [25]]}, "invalid_parameter", "input"),
        (
            "rerank",
            "cross",
            {"query": "a " * 30, "documents": ["a", "b " * 40]},
            "context_length_exceeded",
            "documents[1]",
        ),
    ],
)
def test_what_a_model_cannot_do_is_refused_by_name(
    embedding_stack, path, model, fields, code, param
):
    response = PLAIN.post(f"{embedding_stack.url}/v1/{path}", json={"model": model, **fields})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, code)
    assert error["param"] == (param or "dimensions")


def test_tritons_batcher_joins_calls_and_keeps_them_apart(client, embedding_stack):
    """Two that are refused are among them."""

    def executions() -> int:
        text = PLAIN.get(f"http://127.0.0.1:{embedding_stack.triton_metrics_port}/metrics").text
        return int(EXECUTIONS.search(text)[1])

    words = embedding_models.WORDS
    given = [" ".join(words[at % 7 : at % 7 + at % 11 + 1]) for at in range(200)]
    one_by_one = {
        text: vectors(client.embeddings.create(model="bert", input=text))[0] for text in {*given}
    }
    before = executions()

    def ask(text: str) -> np.ndarray | None:
        try:
            return vectors(client.embeddings.create(model="bert", input=text))[0]
        except openai.BadRequestError:
            return None

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, [*given[:50], "a " * 50, *given[50:], "a " * 50]))
    assert found.pop() is None
    assert found.pop(50) is None
    for text, vector in zip(given, found, strict=True):
        assert np.abs(vector - one_by_one[text]).max() < 1e-5
    assert executions() - before < len(given)


def test_the_largest_request_leaves_a_running_chat_alone(client, embedding_stack):
    texts = [f"{at} " + "words and more " * 55 for at in range(2_048)]
    asked = [{"role": "user", "content": "Tell me a story about a fox."}]
    alone_text = said(client, asked)
    with ThreadPoolExecutor(1) as pool:
        embedding = pool.submit(client.embeddings.create, model="demo-embedding", input=texts)
        during = 0
        while not embedding.done():
            assert said(client, asked) == alone_text
            during += 1
    assert during, "a chat ended while the texts were embedded"
    answer = embedding.result()
    assert [one.index for one in answer.data] == [*range(2_048)]
    assert answer.usage.prompt_tokens > 2_048 * 150
    few = client.embeddings.create(model="demo-embedding", input=[texts[0], texts[-1]])
    assert np.abs(vectors(few) - vectors(answer)[[0, -1]]).max() < 1e-6


def said(client: openai.OpenAI, messages: list[dict[str, str]]) -> str:
    stream = client.chat.completions.create(
        model="demo", messages=messages, stream=True, max_tokens=12, temperature=0
    )
    return "".join(one.choices[0].delta.content or "" for one in stream if one.choices)


def test_callers_do_not_reach_the_triton_model(embedding_stack):
    names = {one["id"] for one in PLAIN.get(f"{embedding_stack.url}/v1/models").json()["data"]}
    assert names == {"demo", "demo-embedding", "bert", "cross", "static"}
    for name in ("bert", "demo-embedding"):
        body = {
            "inputs": [{"name": "end_process", "datatype": "BOOL", "shape": [1, 1], "data": [True]}]
        }
        answer = PLAIN.post(f"{embedding_stack.url}/v2/models/{name}/infer", json=body)
        assert answer.status_code == 403, answer.text


@pytest.mark.parametrize("killed", ["bin/tritonserver", "bert/1/model.py"])
def test_requests_are_sent_again_after_kill_9(embedding_stack, embedding_folders, killed):
    stack, number = embedding_stack, 4
    stack.wait_ready(within_s=110)
    texts = [f"milk at {noon}" for noon in range(400)]
    expected = embedding_models.reference(embedding_folders / "bert", *texts)
    given = {"model": "bert", "input": texts}
    active = 'proxy_requests_active{model="bert"}'

    def are_under_way() -> bool:
        return f"{active} {number}.0" in PLAIN.get(f"{stack.url}/metrics").text

    with ThreadPoolExecutor(number) as pool:
        asked = [
            pool.submit(PLAIN.post, f"{stack.url}/v1/embeddings", json=given) for _ in range(number)
        ]
        eventually(are_under_way, 10, "all are under way")
        for process in stack.descendants(killed):
            process.kill()
        answers = [each.result() for each in asked]
    assert [each.status_code for each in answers] == [200] * number
    for answer in answers:
        found = np.array([one["embedding"] for one in answer.json()["data"]])
        assert np.abs(found - expected).max() < 1e-4
    assert any("x-resends" in answer.headers for answer in answers)
