"""The ensemble without our proxy: any Triton client can use it. Here tritonclient's own."""

from __future__ import annotations

import json
import queue
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from proxy.triton import catalog, tensors
from tests.fixtures.stack import HANG_S, eventually

TYPES = {"BYTES": np.object_, "INT32": np.int32, "BOOL": np.bool_, "FP32": np.float32}


class Stream:
    """One bidirectional stream; `messages` holds (result, error) as they come."""

    def __init__(self, url: str) -> None:
        self.messages: queue.Queue = queue.Queue()
        self.client = InferenceServerClient(url)
        self.client.start_stream(lambda result, error: self.messages.put((result, error)))

    def send(self, model: str, request_id: str, parameters: dict | None = None, **values) -> None:
        inputs = []
        for name, (datatype, elements) in values.items():
            array = np.array([elements], dtype=TYPES[datatype])
            tensor = InferInput(name, list(array.shape), datatype)
            tensor.set_data_from_numpy(array)
            inputs.append(tensor)
        self.client.async_stream_infer(
            model,
            inputs,
            request_id=request_id,
            enable_empty_final_response=True,
            parameters=parameters,
        )

    def answers(self) -> Iterator:
        """Results up to the final one."""
        while True:
            result, error = self.messages.get(timeout=HANG_S)
            if error is not None:
                raise error
            if result.get_response().outputs:
                yield result
            if result.get_response().parameters["triton_final_response"].bool_param:
                return


@pytest.fixture
def stream(stack) -> Iterator[Stream]:
    made = Stream(f"127.0.0.1:{stack.triton_grpc_port}")
    yield made
    made.client.stop_stream(cancel_requests=True)
    made.client.close()


def pieces(results) -> list[bytes]:
    """One a token."""
    return [piece for result in results for piece in result.as_numpy("text_output").ravel()]


def text(results) -> bytes:
    return b"".join(pieces(results))


def test_text_counts_and_reason(stream):
    stream.send("demo", "1", text_input=("BYTES", [b"Hello"]), max_tokens=("INT32", [5]))
    results = list(stream.answers())
    assert sum(result.as_numpy("text_output").size for result in results) <= 5
    assert results[0].as_numpy("num_input_tokens").item() >= 1
    assert all(result.as_numpy("num_input_tokens") is None for result in results[1:])
    assert results[-1].as_numpy("finish_reason").item() in (b"stop", b"length")
    assert all(result.as_numpy("finish_reason") is None for result in results[:-1])


def test_ids_are_appended_to_text(stream):
    """Continuing with the ids of what came before gives what would have come anyway."""
    greedy = {"temperature": ("FP32", [0.0]), "text_input": ("BYTES", [b"abc"])}
    stream.send("endless", "1", max_tokens=("INT32", [12]), **greedy)
    whole = list(stream.answers())
    ids = [int(i) for result in whole for i in result.as_numpy("output_ids").ravel()]
    stream.send("endless", "2", input_ids=("INT32", ids[:5]), max_tokens=("INT32", [7]), **greedy)
    rest = b"".join(pieces(whole)[5:])
    assert text(stream.answers()) == rest


@pytest.mark.parametrize(
    ("values", "code", "param"),
    [
        ({}, "invalid_parameter", "prompt"),
        ({"text_input": ("BYTES", [b""])}, "invalid_parameter", "prompt"),
        ({"text_input": ("BYTES", [b"\xff"])}, "invalid_parameter", "prompt"),
        ({"input_ids": ("INT32", [-1])}, "invalid_parameter", "prompt"),
        ({"input_ids": ("INT32", [5] * 4096)}, "context_length_exceeded", "prompt"),
        (
            {"input_ids": ("INT32", [5] * 4000), "max_tokens": ("INT32", [97])},
            "context_length_exceeded",
            "max_tokens",
        ),
        (
            {"input_ids": ("INT32", [5]), "max_tokens": ("INT32", [0])},
            "invalid_parameter",
            "max_tokens",
        ),
    ],
)
def test_a_refusal_is_json_and_the_engine_never_sees_it(stack, stream, values, code, param):
    before = stack.settled_engine("endless")
    values = values or {"max_tokens": ("INT32", [1])}
    stream.send("endless", "1", **values)
    _, error = stream.messages.get(timeout=HANG_S)
    refusal = json.loads(error.message()[error.message().index("{") :])
    assert (refusal["code"], refusal["param"]) == (code, param)
    assert refusal["message"]
    assert stack.settled_engine("endless") == before


def test_exactly_the_whole_context_is_admitted(stream):
    stream.send(
        "endless", "1",
        input_ids=("INT32", [5] * 4090), max_tokens=("INT32", [6]), temperature=("FP32", [0.0]),
    )  # fmt: skip
    assert len(pieces(stream.answers())) == 6


def stop(stream: Stream, request_id: str) -> None:
    stream.send(
        "endless_engine", request_id,
        input_ids=("INT32", [0]), request_output_len=("INT32", [0]), stop=("BOOL", [True]),
    )  # fmt: skip


def test_a_stop_sent_to_the_engine_ends_the_ensembles_stream(stack, stream):
    stream.send("endless", "a", text_input=("BYTES", [b"abc"]), temperature=("FP32", [0.0]))
    answers = stream.answers()
    next(answers)
    other = Stream(f"127.0.0.1:{stack.triton_grpc_port}")
    stop(other, "a")
    assert list(other.answers()) == []
    assert len(list(answers)) < 4000, "as many as the context has room for"
    other.client.stop_stream()


def test_a_stop_that_comes_before_its_request_counts(stack, stream):
    before = stack.settled_engine("endless")
    stop(stream, "early")
    assert list(stream.answers()) == []
    stream.send("endless", "early", text_input=("BYTES", [b"abc"]))
    assert list(stream.answers()) == []
    eventually(
        lambda: stack.engine("endless")["requests_cancelled"] == before["requests_cancelled"] + 1,
        5,
        "counted as cancelled",
    )
    assert stack.engine("endless")["generated_tokens"] == before["generated_tokens"]


def test_a_cancelled_stream_straight_to_the_engine_frees_it(stack):
    direct = Stream(f"127.0.0.1:{stack.triton_grpc_port}")
    direct.send(
        "endless_engine", "x",
        input_ids=("INT32", [5]), request_output_len=("INT32", [4000]), temperature=("FP32", [0.0]),
    )  # fmt: skip
    next(direct.answers())
    direct.client.stop_stream(cancel_requests=True)
    eventually(lambda: stack.engine("endless")["requests_unfinished"] == 0, 5, "the engine is free")


def test_the_running_models_have_the_proxys_tensors(stack):
    client = InferenceServerClient(f"127.0.0.1:{stack.triton_grpc_port}")
    ensemble = client.get_model_metadata("demo")
    assert catalog.tensor_differences(ensemble, tensors.INPUTS, tensors.OUTPUTS) == []
    engine = client.get_model_metadata("demo_engine")
    assert catalog.tensor_differences(engine, tensors.STOP_INPUTS, ()) == []


def test_the_engine_refuses_a_prompt_that_was_tokenized_for_another_request(stream):
    asked = {"input_ids": ("INT32", [65, 66]), "request_output_len": ("INT32", [2])}
    stream.send("endless_engine", "mine", tokenized_for=("BYTES", [b"mine"]), **asked)
    assert len(list(stream.answers())) >= 1
    stream.send("endless_engine", "mine", tokenized_for=("BYTES", [b"another"]), **asked)
    with pytest.raises(InferenceServerException, match=r'"foreign_answer".*another'):
        list(stream.answers())


def test_each_receipt_names_the_ids_and_the_request(stream):
    text_input = {"text_input": ("BYTES", [b"Hello"]), "max_tokens": ("INT32", [4])}
    top = {"return_log_probs": ("BOOL", [True]), "num_top_log_probs": ("INT32", [2])}
    stream.send("demo", "r-1", **text_input, **top)
    for result in stream.answers():
        ids = result.as_numpy("output_ids").ravel().tolist()
        alternatives = result.as_numpy("top_log_prob_ids")
        ids += [] if alternatives is None else alternatives.ravel().tolist()
        *receipt, mark = result.as_numpy("receipt").ravel().tolist()
        assert receipt == ids
        assert mark % 2**32 == zlib.crc32(b"r-1")
