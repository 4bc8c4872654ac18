"""codec: Triton's responses as deltas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from proxy.domain.output import (
    Alternative,
    EngineTimes,
    FinishReason,
    TokenDelta,
    TokenLogProb,
)
from proxy.triton import codec


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
            finish_reason=packed(b"length"),
        )
    )
    assert message.is_final
    assert message.delta == TokenDelta(
        (b"a",), prompt_tokens=5, cached_tokens=3, finish=FinishReason.LENGTH, queue_s=40.0
    )


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
