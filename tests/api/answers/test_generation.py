"""Chat completions and completions: bodies, chunks, usage, and what reaches the engine."""

from __future__ import annotations

import pytest

from proxy.domain.output import FinishReason, TokenDelta
from tests.api.formats import BOTH, CHAT, CHAT_BODY, TEXT, TEXT_BODY, events
from tests.doubles.engine import ScriptedEngine, deltas


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
@pytest.mark.parametrize("n", [1, 3])
def test_continuous_usage_grows_with_every_chunk(serve, path, body, n):
    """Of several choices, it is of what was sent of all."""
    options = {"stream": True, "n": n, "stream_options": {"continuous_usage_stats": True}}
    chunks = events(serve(ScriptedEngine(deltas("abc"))).post(path, json={**body, **options}))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert sorted(set(counts)) == list(range(0 if path == CHAT else 1, 4 * n + 1))
    assert counts == sorted(counts)
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {7}


@BOTH
def test_no_usage_is_told_where_it_is_not_to_be_included(serve, path, body):
    told = {"include_usage": False, "continuous_usage_stats": True}
    options = {"stream": True, "stream_options": told}
    chunks = events(serve(ScriptedEngine(deltas("abc"))).post(path, json={**body, **options}))
    assert not any("usage" in chunk for chunk in chunks)


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
def test_prompts_that_are_refused(idle, prompt):
    response = idle.post(TEXT, json={"model": "demo", "prompt": prompt})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("prompt")


def test_tokens_without_text_send_no_empty_chunk(serve):
    given = [TokenDelta((b"",), prompt_tokens=1), TokenDelta((b"x",), finish=FinishReason.STOP)]
    chunks = events(serve(ScriptedEngine(given)).post(CHAT, json={**CHAT_BODY, "stream": True}))
    contents = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert contents == ["", "x", None]


def test_models(idle):
    (model,) = idle.get("/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("demo", "model")
    assert model["context_length"] == model["max_output_tokens"] == model["max_model_len"] == 128
    assert {"logit_bias", "logprobs", "min_p", "guided_decoding"} <= set(model["capabilities"])
    assert model["owned_by"] == "system"
    assert model["created"] == 1_700_000_000
    assert idle.get("/v1/models/demo").json() == model


@pytest.mark.parametrize(("sent", "kept"), [("abc-1", True), ("bad id", False), ("x" * 200, False)])
def test_the_callers_request_id_is_kept_where_it_is_usable(idle, sent, kept):
    response = idle.get("/v1/models", headers={"x-request-id": sent})
    assert (response.headers["x-request-id"] == sent) is kept
