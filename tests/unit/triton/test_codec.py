"""codec: an EngineRequest as tensors, and Triton's responses as deltas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.output import (
    Alternative,
    BlockChanges,
    EngineTimes,
    FinishReason,
    TokenDelta,
    TokenLogProb,
)
from proxy.domain.request import PromptLimit, Sampling
from proxy.triton import codec
from tests.doubles.engine import CARD


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


def test_the_rest_of_an_answer_has_the_rest_of_its_limit_and_no_limit_of_the_prompt():
    rest = request(text="hi", token_cap=9, prompt_cap=40).continued(" and more", 4, None)
    assert (rest.max_tokens, rest.token_cap, rest.prompt_cap) == (None, 5, None)


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
    always |= {"queue_time_us", "prefill_time_us", "decode_time_us", "prompt_blocks"}
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
    always = {"queue_time", "engine_times", "deadline", "receipt", "prompt_blocks"}
    assert needed - always == asked.needed_capabilities


def test_ids_are_kept_where_the_model_reports_them_and_the_others_still_take_the_request():
    kept = request(text="hi", keeps_ids=True)
    older = replace(CARD, capabilities=CARD.capabilities - {"receipt"})
    kept = replace(kept, model=older)
    silent = replace(kept, model=replace(older, capabilities=older.capabilities - {"token_ids"}))
    assert "output_ids" in [output.name for output in codec.encode(kept).outputs]
    assert "output_ids" not in [output.name for output in codec.encode(silent).outputs]
    assert not kept.needed_capabilities


def response(*, final=False, **outputs) -> service_pb2.ModelInferResponse:
    message = service_pb2.ModelInferResponse()
    message.parameters["triton_final_response"].bool_param = final
    for name, raw in outputs.items():
        message.outputs.add(name=name)
        message.raw_output_contents.append(raw)
    return message


def packed(*elements: bytes) -> bytes:
    array = np.array(elements, dtype=np.object_)
    return serialize_byte_tensor(array).item() if elements else b""


@given(st.lists(st.binary()))
def test_token_bytes_are_read_as_tritonclient_writes_them(elements):
    message = codec.decode(response(text_output=packed(*elements)))
    assert message.delta == TokenDelta(tuple(elements))


IDS, TOP, MARK = (np.array(ids, np.int32).tobytes() for ids in ([7], [7, 9], [-5]))


@pytest.mark.parametrize("receipt", [None, b"", IDS, MARK, MARK + IDS, TOP + MARK, IDS + TOP])
def test_texts_of_other_ids_or_another_request_are_refused(receipt):
    sent = {"text_output": packed(b"a"), "output_ids": IDS}
    assert codec.decode(response(**sent, receipt=IDS + MARK), MARK).delta.token_ids == (7,)
    with pytest.raises(codec.ForeignReceipt):
        codec.decode(response(**sent, **({} if receipt is None else {"receipt": receipt})), MARK)


@pytest.mark.parametrize("receipt", [IDS + MARK, TOP + MARK, IDS + TOP, IDS + TOP + MARK])
def test_alternatives_of_other_ids_are_refused(receipt):
    sent = {
        "text_output": packed(b"a"),
        "output_ids": IDS,
        "output_log_probs": floats(-0.5),
        "top_log_probs": floats(-0.5, -1.5),
        "top_log_prob_ids": TOP,
        "top_log_prob_text": packed(b"a", b"b"),
    }
    if receipt == IDS + TOP + MARK:
        (found,) = codec.decode(response(**sent, receipt=receipt), MARK).delta.log_probs
        assert [one.token_bytes for one in found.top] == [b"a", b"b"]
        return
    with pytest.raises(codec.ForeignReceipt):
        codec.decode(response(**sent, receipt=receipt), MARK)


def test_first_and_last_response():
    numbers = (5, 3, 40_000_000)
    count, cached, queued = (np.array([number], np.int32).tobytes() for number in numbers)
    message = codec.decode(
        response(
            final=True,
            text_output=packed(b"a"),
            num_input_tokens=count,
            num_cached_tokens=cached,
            queue_time_us=queued,
            prompt_blocks=uint64s(16, 2**64 - 1),
            finish_reason=packed(b"length"),
        )
    )
    assert message.is_final
    assert message.delta == TokenDelta(
        (b"a",),
        prompt_tokens=5,
        cached_tokens=3,
        finish=FinishReason.LENGTH,
        queue_s=40.0,
        prompt_blocks=uint64s(16, 2**64 - 1),
    )


def uint64s(*numbers: int) -> bytes:
    return np.array(numbers, np.uint64).tobytes()


def test_changes_of_a_kv_cache():
    question = codec.encode_blocks_question("demo_engine", 2**63 + 1)
    sent = dict(
        zip((one.name for one in question.inputs), question.raw_input_contents, strict=True)
    )
    assert (question.model_name, sent["blocks_after"]) == ("demo_engine", uint64s(2**63 + 1))
    answer = response(blocks=uint64s(2**63 + 4, 1, 2, 11, 12, 2**64 - 1))
    changes = BlockChanges(2**63 + 4, True, (11, 12), (2**64 - 1,))
    assert codec.decode_block_changes(answer) == changes
    assert codec.decode_block_changes(response(final=True)) is None


@pytest.mark.parametrize("raw", [b"", uint64s(1, 0), uint64s(1, 0, 0) + b"\0"])
def test_changes_that_end_too_early_are_malformed(raw):
    with pytest.raises(codec.MalformedResponse):
        codec.decode_block_changes(response(blocks=raw))


@pytest.mark.parametrize("lacks", [(), ("prefill_time_us",), ("decode_time_us",)])
def test_the_engines_times_come_both_or_not_at_all(lacks):
    times_us = {"prefill_time_us": 250_000, "decode_time_us": 2**31 - 1}
    sent = {
        name: np.array([time_us], np.int32).tobytes()
        for name, time_us in times_us.items()
        if name not in lacks
    }
    message = codec.decode(response(text_output=b"", finish_reason=packed(b"stop"), **sent))
    assert message.delta is not None
    times = EngineTimes(prefill_s=0.25, decode_s=2147.483647)
    assert message.delta.times == (None if lacks else times)


@given(st.lists(st.tuples(st.binary(), st.integers(0, 2**31 - 1))))
def test_ids_stand_beside_the_texts_of_their_tokens(tokens):
    ids = np.array([token for _, token in tokens], np.int32).tobytes()
    texts = [text for text, _ in tokens]
    message = codec.decode(response(text_output=packed(*texts), output_ids=ids))
    assert message.delta == TokenDelta(tuple(texts), token_ids=tuple(t for _, t in tokens))


@pytest.mark.parametrize("raw", [b"\0\0\0", b"\0" * 8])
def test_ids_of_another_number_than_the_tokens_are_malformed(raw):
    with pytest.raises(codec.MalformedResponse):
        codec.decode(response(text_output=packed(b"a"), output_ids=raw))


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


def test_log_probs_and_ids_stand_beside_their_tokens():
    message = codec.decode(
        response(
            text_output=packed(b"a", b"b"),
            output_ids=np.array([4, 5], np.int32).tobytes(),
            output_log_probs=floats(-0.5, -1.5),
            top_log_probs=floats(-0.5, -2, -1, -1.5),
            top_log_prob_ids=np.array([4, 9, 8, 5], np.int32).tobytes(),
            top_log_prob_text=packed(b"a", b"x", b"y", b"b"),
        )
    )
    assert message.delta == TokenDelta(
        (b"a", b"b"),
        token_ids=(4, 5),
        log_probs=(
            TokenLogProb(-0.5, (Alternative(b"a", -0.5, 4), Alternative(b"x", -2.0, 9)), 4),
            TokenLogProb(-1.5, (Alternative(b"y", -1.0, 8), Alternative(b"b", -1.5, 5)), 5),
        ),
    )


@pytest.mark.parametrize(
    "outputs",
    [
        {"text_output": b"\x05\x00\x00\x00abc"},
        {"text_output": b"\x05\x00"},
        {"text_output": packed(b"a"), "output_ids": b"\x00" * 8},
        {"text_output": packed(b"a"), "output_ids": b"\x00" * 3},
        {"text_output": packed(b"a"), "output_log_probs": b"\x00" * 8},
        {"text_output": packed(b"a"), "output_log_probs": b"\x00" * 4, "top_log_probs": b"0000"},
        {"finish_reason": packed(b"bored")},
        {
            "text_output": packed(b""),
            "output_log_probs": b"",
            "top_log_probs": b"\0" * 4,
            "top_log_prob_text": packed(b"a"),
        },
    ],
)
def test_what_is_outside_the_contract_is_an_error(outputs):
    with pytest.raises(codec.MalformedResponse):
        codec.decode(response(**outputs))
