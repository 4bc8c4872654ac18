"""The ensemble around NVIDIA's C++ backend, with a replay of that backend's streams for it."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.request import Sampling
from tests.fixtures.stack import HANG_S, eventually
from tests.server.tensorrt_llm.streams import LONG_STEPS, MANY

LOGITS = 512


def complete(stack, stream_number: int, **fields) -> httpx.Response:
    body = {"model": "cpp", "prompt": [stream_number, 60, 61], "temperature": 0, **fields}
    return httpx.post(f"{stack.url}/v1/completions", json=body, timeout=HANG_S)


def choice(stack, stream_number: int, **fields) -> tuple[str, str, int]:
    """Text, finish reason, tokens."""
    answer = complete(stack, stream_number, **fields).raise_for_status().json()
    (only,) = answer["choices"]
    return only["text"], only["finish_reason"], answer["usage"]["completion_tokens"]


def last_received(models) -> dict:
    return models.received("cpp")[-1]


@pytest.mark.parametrize(
    ("stream_number", "max_tokens", "finish", "tokens"),
    [
        (10, 9, "stop", 2),  # the end token is not in the output
        (10, 2, "length", 2),
        (11, 9, "stop", 5),
        (11, 5, "stop", 5),  # at the limit, but with the end token
        (14, 3, "length", 3),
        (17, 9, "stop", 0),
    ],
)
def test_text_and_finish_reason_of_each_kind_of_end(
    stack, models, stream_number, max_tokens, finish, tokens
):
    table = np.load(models.artifacts / "cpp" / "token_bytes.npz")
    starts = [0, *table["ends"]]
    ids = [75, 76, 77, 78][: tokens - (stream_number == 11)]
    text = b"".join(table["blob"].tobytes()[starts[i] : starts[i + 1]] for i in ids).decode()
    assert choice(stack, stream_number, max_tokens=max_tokens) == (text, finish, tokens)


def test_a_stream_of_the_proxy_is_the_same(stack):
    whole, finish, _ = choice(stack, 11, max_tokens=9)
    streamed = complete(
        stack, 11, max_tokens=9, stream=True, stream_options={"include_usage": True}
    )
    chunks = [json.loads(line[6:]) for line in streamed.text.splitlines() if line[6:7] == "{"]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert "".join(one["text"] for one in choices) == whole
    assert [one["finish_reason"] for one in choices if one["finish_reason"]] == [finish]
    assert chunks[-1]["usage"]["prompt_tokens"] == 3


def test_log_probs_are_each_tokens_own_although_they_come_cumulated(stack):
    answer = complete(stack, 12, max_tokens=9, logprobs=0).raise_for_status().json()
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [-0.25, -0.5, -0.75, -1.0]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_many_streams_share_the_detokenizers_batches_and_keep_their_order(triton, stack, models):
    def counted(name: str) -> float:
        page = httpx.get(f"http://127.0.0.1:{triton.triton_metrics_port}/metrics").text
        return float(
            re.search(rf'^{name}{{model="cpp_detokenizer".*}} (\S+)$', page, re.MULTILINE)[1]
        )

    table = np.load(models.artifacts / "cpp" / "token_bytes.npz")
    starts = [0, *table["ends"]]
    due = [75 + at % 8 for at in range(MANY)]
    text = b"".join(table["blob"].tobytes()[starts[i] : starts[i + 1]] for i in due).decode()
    names = ("nv_inference_request_success", "nv_inference_exec_count")
    before = [counted(name) for name in names]

    def asked(number: int) -> dict:
        wants = {"logprobs": 0} if number % 2 else {}  # an input of their own, longer each time
        answer = complete(stack, 18, max_tokens=MANY, **wants).raise_for_status()
        return answer.json()["choices"][0]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(asked, range(16)))
    assert [answer["text"] == text for answer in answers] == [True] * 16
    for answer in answers[1::2]:
        assert answer["logprobs"]["token_logprobs"] == [-at / 8 for at in range(MANY)]
    requests, batches = (counted(name) - at for name, at in zip(names, before, strict=True))
    assert requests == 16 * MANY
    assert batches < requests * 0.9


def test_a_late_error_ends_the_stream_with_it(stack):
    streamed = complete(stack, 13, stream=True)
    *_, error, done = [line for line in streamed.text.splitlines() if line]
    assert "The model server failed." in error
    assert "Encountered an error in forward function" in stack.log.read_text()
    assert done == "data: [DONE]"
    assert complete(stack, 13).status_code == 500
    assert complete(stack, 16).status_code == 500
    assert "exceeds maximum input length" in stack.log.read_text()


def test_a_client_that_leaves_stops_the_backend(stack, models):
    before = len(models.received("cpp"))
    body = {"model": "cpp", "prompt": [15], "max_tokens": LONG_STEPS, "stream": True}
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=body) as response:
        next(response.iter_lines())
    eventually(lambda: len(models.received("cpp")) == before + 2, 3, "the stop came")
    begun, stop = models.received("cpp")[before:]
    assert stop["id"] == begun["id"]
    assert stop["stop"] == [True]
    assert stop["input_lengths"] == stop["request_output_len"] == stop["input_ids"] == [0]


def test_a_stop_string_stops_it_too(stack, models):
    text, _, _ = choice(stack, 11, max_tokens=9)
    stopped, finish, _ = choice(stack, 15, max_tokens=LONG_STEPS, stop=text[1])
    assert (stopped, finish) == (text[0], "stop")
    eventually(lambda: last_received(models).get("stop") == [True], 3, "the stop came")


def test_greedy_and_nothing_said_reach_it_in_its_own_terms(stack, models):
    choice(stack, 10, max_tokens=9)
    sent = last_received(models)
    assert (sent["input_ids"], sent["input_lengths"]) == ([10, 60, 61], [3])
    assert (sent["request_output_len"], sent["end_id"], sent["streaming"]) == ([9], [2], [True])
    assert (sent["runtime_top_k"], sent["runtime_top_p"], sent["temperature"]) == ([1], [1], [1])
    assert sent["return_num_input_tokens"] == [True]
    assert sent["stop_words_list.shape"] == sent["bad_words_list.shape"] == [1, 2, 0]
    assert sent["embedding_bias.shape"] == [1, 0]
    for absent in ("return_log_probs", "guided_decoding_guide_type", "min_tokens", "pad_id"):
        assert absent not in sent
    complete(stack, 10, max_tokens=9, temperature=0.5)
    first = last_received(models)["seed"]
    complete(stack, 10, max_tokens=9, temperature=0.5)
    assert last_received(models)["seed"] != first
    assert last_received(models)["runtime_top_k"] == [0]


def test_all_that_is_said_reaches_it(stack, models):
    complete(
        stack, 12, max_tokens=9, temperature=0.5, top_p=0.25, top_k=7, seed=11, logprobs=0,
        presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.5, ignore_eos=True,
        stop_token_ids=[40, 41], logit_bias={"75": -100}, bad_words=["ab"],
    ).raise_for_status()  # fmt: skip
    sent = last_received(models)
    assert (sent["temperature"], sent["runtime_top_p"], sent["runtime_top_k"]) == (
        [0.5],
        [0.25],
        [7],
    )
    assert (sent["seed"], sent["end_id"], sent["return_log_probs"]) == ([11], [-1], [True])
    assert sent["presence_penalty"] == [0.5]
    assert sent["frequency_penalty"] == [0.25]
    assert sent["repetition_penalty"] == [1.5]
    assert sent["stop_words_list"] == [40, 41, 1, 2]
    assert sent["bad_words_list"][0] > 0
    bias = sent["embedding_bias"]
    assert (len(bias), bias[75], set(bias) - {bias[75]}) == (LOGITS, -100, {0.0})


def test_allowed_tokens_are_a_bias_against_all_others(stack, models):
    complete(stack, 10, max_tokens=9, allowed_token_ids=[75, 76]).raise_for_status()
    bias = np.array(last_received(models)["embedding_bias"])
    assert np.flatnonzero(bias == 0).tolist() == [75, 76]
    assert bias.min() == bias[0] == -10_000


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"min_p": 0.1}, "min_p"),
        ({"logprobs": 2}, "logprobs"),
        ({"priority": 1}, "priority"),
        ({"cache_salt": "x"}, "cache_salt"),
    ],
)
def test_what_the_backend_lacks_is_refused_by_name(stack, models, fields, param):
    before = len(models.received("cpp"))
    refused = complete(stack, 10, **fields)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (
        400, "unsupported_parameter", param,
    )  # fmt: skip
    assert len(models.received("cpp")) == before


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"511": 1, "512": 1}}, "logit_bias"),
        ({"min_tokens": 2, "stop_token_ids": [40]}, "min_tokens"),
    ],
)
def test_what_it_cannot_do_right_is_refused_by_name(stack, fields, param):
    refused = complete(stack, 10, **fields)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, param)


def test_a_guide_reaches_it_and_one_that_it_ignores_is_refused(stack, ask, models):
    complete(stack, 10, guided_regex="a+", max_tokens=3).raise_for_status()
    sent = last_received(models)
    assert sent["guided_decoding_guide_type"] == ["regex"]
    assert sent["guided_decoding_guide"] == ["a+"]
    tag = Constraint(GuideKind.STRUCTURAL_TAG, "{}")
    refusal = ask([10], "cpp", constraint=tag, max_tokens=3)
    assert "'structural_tag' is not one of json, json_schema, regex, ebnf_grammar" in refusal
    both = ask(
        [10], "cpp", constraint=Constraint(GuideKind.REGEX, "a"),
        sampling=Sampling(allowed_token_ids=(75,)), max_tokens=3,
    )  # fmt: skip
    assert "cannot combine allowed_token_ids with a guide" in both
