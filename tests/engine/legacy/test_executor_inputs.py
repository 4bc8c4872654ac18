"""A request in the terms of TensorRT-LLM's C++ backend; whole: tests/server/tensorrt_llm."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from executor_inputs import BANNED, ExecutorInputs

from refusal import Refusal

REPOSITORY = Path(__file__).parents[3] / "model_repository"


def load(role: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{role}_model", REPOSITORY / role / "1/model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


newest = load("detokenizer").newest_log_probs
INPUTS = ExecutorInputs(end_ids=(2, 5), logits_size=50)


def of(**given):
    return INPUTS.of(lambda name: list(given.get(name, ())), prompt_tokens=7)


@pytest.mark.parametrize(
    ("given", "end_id", "stops"),
    [
        ({}, 2, [[5], [1]]),
        ({"stop_token_ids": [9, 5, 9]}, 2, [[5, 9], [1, 2]]),
        ({"ignore_eos": [True]}, -1, [[], []]),
        ({"ignore_eos": [True], "stop_token_ids": [9]}, -1, [[9], [1]]),
        ({"ignore_eos": [False]}, 2, [[5], [1]]),
    ],
)
def test_one_end_token_and_the_others_as_stop_words(given, end_id, stops):
    tensors = of(**given)
    assert tensors["end_id"].tolist() == [[end_id]]
    assert tensors["stop_words_list"].tolist() == [stops]


def test_a_model_without_end_tokens_ends_nowhere():
    tensors = ExecutorInputs(end_ids=(), logits_size=5).of(lambda _: [], prompt_tokens=1)
    assert tensors["end_id"].tolist() == [[-1]]
    assert tensors["stop_words_list"].shape == (1, 2, 0)


@pytest.mark.parametrize(
    ("given", "drawing"),
    [
        ({}, (1.0, 0, 1.0)),
        ({"temperature": [0.0], "top_p": [0.5]}, (1.0, 1, 1.0)),
        ({"top_p": [0.0], "temperature": [0.5]}, (1.0, 1, 1.0)),
        ({"top_k": [1]}, (1.0, 1, 1.0)),
        ({"temperature": [0.5], "top_k": [7], "top_p": [0.25]}, (0.5, 7, 0.25)),
    ],
)
def test_greedy_is_top_k_1(given, drawing):
    tensors = of(**given)
    names = ("temperature", "runtime_top_k", "runtime_top_p")
    assert tuple(tensors[name].item() for name in names) == drawing


def test_more_of_the_likeliest_tokens_than_its_kernels_take_are_refused():
    inputs = ExecutorInputs(end_ids=(2,), logits_size=5000)

    def top_k(given: int) -> int:
        tensors = inputs.of(lambda name: [given] if name == "top_k" else [], prompt_tokens=7)
        return tensors["runtime_top_k"].item()

    assert (top_k(1024), top_k(5000)) == (1024, 0), "the whole vocabulary is all"
    with pytest.raises(Refusal, match="top_k is 1025: the backend accepts at most 1024"):
        top_k(1025)


def test_the_largest_seed_arrives_and_none_is_a_random_one():
    largest = of(seed=[2**64 - 1])["seed"]
    assert (largest.dtype, largest.item()) == (np.uint64, 2**64 - 1)
    assert of()["seed"] != of()["seed"]


def test_a_bias_and_allowed_tokens_add_up():
    bias = of(allowed_token_ids=[3, 4], logit_bias_ids=[4, 6, 4], logit_bias_values=[1.0, 2.0, 0.5])
    (row,) = bias["embedding_bias"]
    assert (len(row), row[3], row[4], row[6], row[0]) == (50, 0, 1.5, BANNED + 2, BANNED)
    assert of()["embedding_bias"].shape == (1, 0)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"logit_bias_ids": [50], "logit_bias_values": [1.0]}, "logit_bias"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
        ({"stop_token_ids": [49, 50]}, "stop_token_ids"),
        ({"allowed_token_ids": [1], "guided_decoding_guide_type": [b"json"]}, "allowed_token_ids"),
        ({"min_tokens": [3]}, "min_tokens"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(given, param):
    with pytest.raises(Refusal) as refused:
        of(**given)
    assert refused.value.param == param


def test_min_tokens_holds_back_the_only_end_token():
    only = ExecutorInputs(end_ids=(2,), logits_size=5)
    tensors = only.of(lambda name: [3] if name == "min_tokens" else [], prompt_tokens=1)
    assert tensors["end_id"].item() == 2


def test_an_end_token_of_the_models_own_may_be_outside_the_logits():
    inputs = ExecutorInputs(end_ids=(2, 70), logits_size=50)
    tensors = inputs.of(lambda name: [70] if name == "stop_token_ids" else [], prompt_tokens=1)
    assert tensors["stop_words_list"].tolist() == [[[70], [1]]]


@pytest.mark.parametrize(("so_far", "tokens"), [(1, 1), (5, 2), (5, 0), (0, 0)])
def test_the_newest_log_probs_are_the_last_ones(so_far, tokens):
    values = np.arange(so_far, dtype=np.float32)
    found = newest(values.reshape(1, 1, -1), tokens)
    assert found.shape == (1, 1, tokens)
    assert found.ravel().tolist() == values.tolist()[so_far - tokens :]


def test_fewer_log_probs_than_tokens_are_an_error():
    with pytest.raises(ValueError, match="sent 1 log-probabilities for 2 tokens"):
        newest(np.zeros((1, 1, 1), np.float32), 2)
