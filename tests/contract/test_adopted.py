"""Models of others are recognized by the configurations that upstream declares, and by no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tritonclient.grpc import model_config_pb2
from tritonclient.grpc.model_config_pb2 import ModelConfig

from proxy.domain.model import Kind
from proxy.triton.dialects.recognition import recognized
from tests.fixtures.adopted import RECORDS, record

SAMPLING = {"temperature", "top_k", "top_p", "presence_penalty", "frequency_penalty", "seed"}
SAMPLING |= {"max_tokens"}
CPP = SAMPLING | {"repetition_penalty", "min_tokens", "bad_words"}
VLLM = CPP | {"min_p", "ignore_eos", "stop_token_ids", "allowed_token_ids", "constraint", "lora"}
VLLM |= {"log_probs", "top_log_probs", "log_prob_ids", "token_ids", "special_text", "images"}
EXPECTED = {
    "vllm": (Kind.VLLM, VLLM | {"embeddings"}),
    "llmapi_old": (Kind.LLMAPI, SAMPLING),
    "llmapi": (Kind.LLMAPI, SAMPLING),
    "ensemble": (Kind.CPP, CPP | {"constraint"}),
    "bls": (Kind.CPP, CPP),
}
# The tensors that a dialect relies on. Others may be missing, or may be anything.
PREFIXED = {f"sampling_param_{name}" for name in SAMPLING}
CPP_NEEDS = {"text_input", "stream", "stop_words", "text_output", *CPP}
NEEDED = {
    "vllm": {
        *("text_input", "stream", "sampling_parameters", "return_finish_reason", "text_output"),
        *("finish_reason", "return_logprobs", "logprobs", "image", "embedding_request"),
        *("return_num_input_tokens", "return_num_output_tokens", "num_output_tokens"),
    },
    "llmapi": {"text_input", "streaming", "text_output", "finish_reason", *PREFIXED},
    "ensemble": CPP_NEEDS | {"guided_decoding_guide", "guided_decoding_guide_type"},
    "bls": CPP_NEEDS,
}
NEEDED["llmapi_old"] = NEEDED["llmapi"]
STEPS = ("engine", "preprocessing", "postprocessing")


def found(config: ModelConfig, *, steps: bool = True) -> tuple[Kind, set[str]] | None:
    """The kind and the capabilities."""
    others = {one.name: one for one in map(record, STEPS)} if steps else {}
    one = recognized(config, {**others, config.name: config})
    return one and (one.model.facts.kind, {*one.model.capabilities})


def mutants(name: str, side: str, tensor: str) -> Iterator[ModelConfig]:
    """With the tensor renamed, with another datatype, and without it."""
    for change in ("name", "datatype", "removed"):
        config = record(name)
        tensors = getattr(config, side)
        (at,) = [at for at, one in enumerate(tensors) if one.name == tensor]
        if change == "name":
            tensors[at].name += "s"
        elif change == "datatype":
            is_number = tensors[at].data_type == model_config_pb2.TYPE_FP32
            tensors[at].data_type = model_config_pb2.TYPE_INT32 if is_number else TYPE_FP32
        else:
            del tensors[at]
        yield config


TYPE_FP32 = model_config_pb2.TYPE_FP32
TENSORS = [
    (name, side, one["name"])
    for name in EXPECTED
    for side in ("input", "output")
    for one in RECORDS[name]["config"][side]
]


@pytest.mark.parametrize("name", EXPECTED)
def test_what_upstream_declares_is_recognized(name):
    assert found(record(name)) == EXPECTED[name]


@pytest.mark.parametrize("name", STEPS)
def test_the_steps_of_an_ensemble_are_no_models_for_text(name):
    one = found(record(name))
    assert one is None or one == (Kind.TEXT, set())


@pytest.mark.parametrize(("name", "side", "tensor"), TENSORS)
def test_a_change_of_a_tensor_that_a_dialect_relies_on_is_noticed(name, side, tensor):
    kind, capabilities = EXPECTED[name]
    for mutant in mutants(name, side, tensor):
        now = found(mutant)
        if tensor in NEEDED[name]:
            assert now is None or now[0] is not kind or now[1] < capabilities
        else:
            assert now == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_further_required_input_is_noticed(name):
    config = record(name)
    config.input.add(name="tenant", data_type=model_config_pb2.TYPE_STRING, dims=[1])
    assert found(config) in (None, (Kind.TEXT, set()))


def test_guides_need_an_engine_that_has_xgrammar():
    assert "constraint" not in found(record("ensemble"), steps=False)[1]


@pytest.mark.parametrize("name", RECORDS)
def test_each_record_has_its_source(name):
    source = RECORDS[name]["source"]
    assert len(source["commit"]) == 40
    assert source.keys() == {"repository", "path", "commit", "dated", "marker", "extracted"}
