"""codec: an EngineRequest as tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.request import PromptLimit, Sampling
from proxy.triton import codec
from tests.doubles.engine import CARD, FACTS


def request(**fields) -> EngineRequest:
    sampling = fields.pop("sampling", Sampling())
    return EngineRequest(id="r1", model=CARD, timeout_s=1, sampling=sampling, **fields)


def tensors(message: service_pb2.ModelInferRequest) -> dict[str, list]:
    """Read back with numpy and tritonclient, not with our own code."""
    types = {"INT32": np.int32, "UINT64": np.uint64, "FP32": np.float32, "BOOL": np.bool_}
    read = {}
    for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True):
        if tensor.datatype == "BYTES":
            values = deserialize_bytes_tensor(raw).tolist()
        else:
            values = np.frombuffer(raw, types[tensor.datatype]).tolist()
        assert list(tensor.shape) == [1, len(values)]
        read[tensor.name] = values
    return read


def test_an_operators_limits_go_to_the_tokenizer():
    asked = request(text="hi", token_cap=9, prompt_cap=40)
    assert asked.needed_capabilities == {"limits"}
    for message in (codec.encode(asked), codec.encode_admission(asked)):
        sent = tensors(message)
        assert (sent["default_max_tokens"], sent["max_prompt_tokens"]) == ([9], [40])


def test_the_rest_of_an_answer_has_the_rest_of_its_limit_and_no_limit_of_the_prompt():
    rest = request(text="hi", token_cap=9, prompt_cap=40).continued(" and more", 4, None)
    assert (rest.max_tokens, rest.token_cap, rest.prompt_cap) == (None, 5, None)


def test_a_lease_is_dummies_under_its_own_id():
    message = codec.encode_lease(request(text="hi"), "lease-1")
    assert (message.model_name, message.id) == ("demo_engine", "lease-1")
    assert tensors(message) == {"input_ids": [0], "request_output_len": [0], "lease": [True]}
    assert message.parameters["triton_enable_empty_final_response"].bool_param


def test_an_adapter_goes_to_its_models_ensemble_with_its_name():
    adapter = replace(CARD, name="sql", parent="demo")
    message = codec.encode(replace(request(text="hi"), model=adapter))
    assert (message.model_name, tensors(message)["lora_name"]) == ("demo", [b"sql"])
    assert "lora_name" not in tensors(codec.encode_admission(replace(request(), model=adapter)))


@given(
    st.text(),
    st.integers(1, 2**31 - 1),
    st.floats(0, 2, width=32),
    st.integers(-(2**63), 2**63 - 1),
)
def test_every_value_arrives_as_it_was(text, max_tokens, temperature, seed):
    sampling = Sampling(temperature=temperature, top_p=0.5, seed=seed)
    sent = tensors(codec.encode(request(text=text, max_tokens=max_tokens, sampling=sampling)))
    assert sent == {
        "text_input": [text.encode()],
        "add_special_tokens": [True],
        "max_tokens": [max_tokens],
        "temperature": [temperature],
        "top_p": [0.5],
        "seed": [seed % 2**64],
        "timeout_ms": [1000],
    }


def test_lists_constraints_and_the_rest_arrive_too():
    sampling = Sampling(
        logit_bias=((5, -100.0), (7, 1.5)),
        bad_words=("a", "né"),
        stop_token_ids=(3, 4),
        top_log_probs=3,
        ignore_eos=True,
    )
    constraint = Constraint(GuideKind.REGEX, "a+")
    sent = tensors(
        codec.encode(
            request(text="", sampling=sampling, constraint=constraint, priority=-1, cache_salt="s")
        )
    )
    assert sent == {
        "text_input": [b""],
        "add_special_tokens": [True],
        "logit_bias_ids": [5, 7],
        "logit_bias_values": [-100.0, 1.5],
        "bad_words": [b"a", "né".encode()],
        "ignore_eos": [True],
        "stop_token_ids": [3, 4],
        "return_log_probs": [True],
        "num_top_log_probs": [3],
        "guided_decoding_guide_type": [b"regex"],
        "guided_decoding_guide": [b"a+"],
        "priority": [-1],
        "cache_salt": [b"s"],
        "timeout_ms": [1000],
    }


def test_a_stop_names_the_engine_and_the_same_request():
    message = codec.encode_stop(request(text="hi"))
    assert (message.model_name, message.id) == ("demo_engine", "r1")
    assert tensors(message) == {"input_ids": [0], "request_output_len": [0], "stop": [True]}


@pytest.mark.parametrize(
    ("fields", "outputs"),
    [
        ({}, set()),
        ({"wants_token_ids": True}, {"output_ids"}),
        ({"sampling": Sampling(top_log_probs=0)}, {"output_log_probs"}),
        (
            {"sampling": Sampling(top_log_probs=2)},
            {"output_log_probs", "top_log_probs", "top_log_prob_text"},
        ),
        (
            {"sampling": Sampling(top_log_probs=2), "wants_log_prob_ids": True},
            {"output_log_probs", "top_log_probs", "top_log_prob_text", "top_log_prob_ids"},
        ),
    ],
)
def test_only_outputs_that_are_wanted_are_asked_for(fields, outputs):
    always = {"text_output", "num_input_tokens", "num_cached_tokens", "finish_reason"}
    always |= {"queue_time_us", "prefill_time_us", "decode_time_us"}
    older = replace(CARD, capabilities=CARD.capabilities - {"receipt"})
    message = codec.encode(replace(request(text="x", **fields), model=older))
    assert {output.name for output in message.outputs} == always | outputs
    # a receipt is compared with all ids
    ids = {"top_log_prob_ids"} if "top_log_probs" in outputs else set()
    message = codec.encode(request(text="x", **fields))
    asked = {output.name for output in message.outputs}
    assert asked == always | outputs | {"receipt", "output_ids"} | ids


@pytest.mark.parametrize("top", [None, 0, 1])
def test_what_a_request_asks_for_is_what_its_tensors_need(top):
    """So a model that lacks a capability never gets a tensor that it does not declare."""
    asked = request(
        text="x",
        sampling=Sampling(min_p=0.5, logit_bias=((1, 1.0),), top_log_probs=top),
        constraint=Constraint(GuideKind.JSON),
        priority=1,
        prompt_limit=PromptLimit(tokens=3),
        wants_token_ids=True,
        wants_log_prob_ids=True,
    )
    sent = tensors(codec.encode(asked)) | {o.name: 0 for o in codec.encode(asked).outputs}
    rows = (*codec.tensors.INPUTS, *codec.tensors.OUTPUTS)
    needed = {row.capability for row in rows if row.name in sent and row.capability}
    # sent wherever there is a tensor for it
    always = {"queue_time", "engine_times", "deadline", "receipt"}
    assert needed - always == asked.needed_capabilities


CPP_CARD = replace(CARD, facts=replace(FACTS, runtime=codec.tensors.CPP_RUNTIME, end_ids=(2,)))


def test_the_cpp_backend_is_asked_for_ids_and_for_nothing_that_it_does_not_tell():
    message = codec.encode(replace(request(text="x"), model=CPP_CARD))
    asked = {one.name for one in message.outputs}
    assert asked == {"text_output", "num_input_tokens", "output_ids", "receipt"}


def test_a_stop_of_the_cpp_backend_has_all_that_it_requires():
    sent = tensors(codec.encode_stop(replace(request(text="x"), model=CPP_CARD)))
    assert sent == {
        "input_ids": [0],
        "request_output_len": [0],
        "input_lengths": [0],
        "stop": [True],
    }


def test_ids_are_kept_where_the_model_reports_them_and_the_others_still_take_the_request():
    kept = request(text="hi", keeps_ids=True)
    older = replace(CARD, capabilities=CARD.capabilities - {"receipt"})
    kept = replace(kept, model=older)
    silent = replace(kept, model=replace(older, capabilities=older.capabilities - {"token_ids"}))
    assert "output_ids" in [output.name for output in codec.encode(kept).outputs]
    assert "output_ids" not in [output.name for output in codec.encode(silent).outputs]
    assert not kept.needed_capabilities


@pytest.mark.parametrize(
    ("fields", "ids"),
    [({"text": "hi"}, [7, 8]), ({"token_ids": (1, 2)}, [1, 2, 7, 8])],
)
def test_a_continued_answer_has_its_ids_behind_the_prompts(fields, ids):
    continued = request(generated=(7, 8), max_tokens=9, **fields)
    assert continued.needed_capabilities == {"resume"}
    for message in (codec.encode(continued), codec.encode_admission(continued)):
        sent = tensors(message)
        assert (sent["input_ids"], sent["resume_from"], sent["max_tokens"]) == (ids, [2], [9])
        assert sent.get("text_input") == ([b"hi"] if "text" in fields else None)
