"""Chat completions and completions: bodies, chunks, usage, and what reaches the engine."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.domain.output import FinishReason, TokenDelta
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.examples import examples

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
CHAT_BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
TEXT_BODY = {"model": "demo", "prompt": "hi"}
BOTH = pytest.mark.parametrize(("path", "body"), [(CHAT, CHAT_BODY), (TEXT, TEXT_BODY)])


def events(response) -> list[dict]:
    """The payloads of a stream that ends with [DONE]."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    *lines, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def text_of(choice: dict) -> str:
    return choice["delta"].get("content", "") if "delta" in choice else choice["text"]


def usage(completion_tokens: int) -> dict:
    """Of the scripted deltas, whose prompt has 7 tokens and 4 of them from the cache."""
    return {
        "prompt_tokens": 7,
        "completion_tokens": completion_tokens,
        "total_tokens": 7 + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def test_a_whole_chat_completion(serve):
    body = serve(ScriptedEngine(deltas("Hé!"))).post(CHAT, json=CHAT_BODY).json()
    assert body.pop("id").startswith("chatcmpl-")
    assert body.pop("system_fingerprint").startswith("fp_")
    assert body.pop("created") > 1_700_000_000
    assert body == {
        "object": "chat.completion",
        "model": "demo",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hé!", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage(5),
    }


def test_a_whole_text_completion(serve):
    body = (
        serve(ScriptedEngine(deltas("Hé!", FinishReason.LENGTH))).post(TEXT, json=TEXT_BODY).json()
    )
    assert body.pop("id").startswith("cmpl-")
    assert body.pop("system_fingerprint").startswith("fp_")
    assert body.pop("created")
    assert body == {
        "object": "text_completion",
        "model": "demo",
        "choices": [{"index": 0, "text": "Hé!", "logprobs": None, "finish_reason": "length"}],
        "usage": usage(5),
    }


def test_a_chat_stream_has_role_first_and_finish_last(serve):
    client = serve(ScriptedEngine(deltas("ab")))
    chunks = events(client.post(CHAT, json={**CHAT_BODY, "stream": True}))
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "a"},
        {"content": "b"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]


@BOTH
def test_usage_is_null_but_in_a_last_chunk_of_its_own(serve, path, body):
    client = serve(ScriptedEngine(deltas("ab")))
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = events(client.post(path, json={**body, **options}))
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == usage(3)


@BOTH
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(
    text=st.text(),
    reason=st.sampled_from(FinishReason),
    stop=st.none()
    | st.text(min_size=1, max_size=2)
    | st.lists(st.text(min_size=1, max_size=2), max_size=3),
)
def test_the_fold_of_the_stream_is_the_whole_body(serve, path, body, text, reason, stop):
    client = serve(ScriptedEngine(deltas(text, reason)))
    body = {**body, "stop": stop}
    whole = client.post(path, json=body).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = events(client.post(path, json={**body, **options}))
    (choice,) = whole["choices"]
    streamed = "".join(text_of(chunk["choices"][0]) for chunk in chunks)
    assert streamed == (choice["message"]["content"] if path == CHAT else choice["text"])
    assert chunks[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    assert last["usage"] == whole["usage"]


def test_what_the_caller_says_reaches_the_engine(serve):
    engine = ScriptedEngine(deltas("a"))
    body = {**CHAT_BODY, "max_completion_tokens": 3, "temperature": 0.5, "top_p": 0.9, "seed": -1}
    serve(engine).post(CHAT, json=body)
    (seen,) = engine.requests
    assert seen.text == "<user>hi\n<assistant>"
    assert seen.max_tokens == 3
    assert (seen.sampling.temperature, seen.sampling.top_p, seen.sampling.seed) == (0.5, 0.9, -1)


def test_text_parts_are_joined(serve):
    engine = ScriptedEngine(deltas("a"))
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    serve(engine).post(
        CHAT, json={"model": "demo", "messages": [{"role": "user", "content": parts}]}
    )
    assert engine.requests[0].text == "<user>ab\n<assistant>"


@pytest.mark.parametrize(
    ("prompt", "text", "ids"),
    [("hi", "hi", None), (["hi"], "hi", None), ([5, 6], None, (5, 6)), ("", "<s>", None)],
)
def test_prompts_of_a_text_completion(serve, prompt, text, ids):
    engine = ScriptedEngine(deltas("a"))
    assert serve(engine).post(TEXT, json={"model": "demo", "prompt": prompt}).status_code == 200
    assert (engine.requests[0].text, engine.requests[0].token_ids) == (text, ids)


@pytest.mark.parametrize("prompt", [[], ["a", 1], [-1], [2**31], {}, 5, [[]], [[1], "a"]])
def test_prompts_that_are_refused(serve, prompt):
    response = serve(ScriptedEngine()).post(TEXT, json={"model": "demo", "prompt": prompt})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("prompt")


def test_tokens_without_text_send_no_empty_chunk(serve):
    given = [TokenDelta((b"",), prompt_tokens=1), TokenDelta((b"x",), finish=FinishReason.STOP)]
    chunks = events(serve(ScriptedEngine(given)).post(CHAT, json={**CHAT_BODY, "stream": True}))
    contents = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert contents == ["", "x", None]


def test_models(serve):
    client = serve(ScriptedEngine())
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("demo", "model")
    assert model["context_length"] == model["max_output_tokens"] == model["max_model_len"] == 128
    assert {"logit_bias", "logprobs", "min_p", "guided_decoding"} <= set(model["capabilities"])
    assert model["owned_by"]
    assert model["created"] == 1_700_000_000
    assert client.get("/v1/models/demo").json() == model


@pytest.mark.parametrize(("sent", "kept"), [("abc-1", True), ("bad id", False), ("x" * 200, False)])
def test_the_callers_request_id_is_kept_where_it_is_usable(serve, sent, kept):
    response = serve(ScriptedEngine()).get("/v1/models", headers={"x-request-id": sent})
    assert (response.headers["x-request-id"] == sent) is kept


def test_metrics_count_requests_tokens_and_time_to_first_token(serve):
    client = serve(ScriptedEngine(deltas("ab")))
    client.post(CHAT, json=CHAT_BODY)
    client.post(CHAT, json={"model": "nope", "messages": []})
    text = client.get("/metrics").text
    for line in (
        'proxy_requests_total{model="demo",outcome="stop"} 1.0',
        'proxy_prompt_tokens_total{model="demo"} 7.0',
        'proxy_completion_tokens_total{model="demo"} 3.0',
        'proxy_time_to_first_token_seconds_count{model="demo"} 1.0',
        'proxy_http_responses_total{route="/v1/chat/completions",status="400"} 1.0',
        'proxy_requests_active{model="demo"} 0.0',
    ):
        assert line in text.splitlines()
