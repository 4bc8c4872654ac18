"""The engine's features through a running Triton: the ensemble's tensors, and its own metrics."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import grpc
import httpx
import numpy as np
import pytest
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import Sampling
from proxy.triton import codec
from tests.doubles.engine import FACTS

GREEDY = Sampling(temperature=0.0)
PROMPT = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
NUMPY = {"INT32": np.int32, "FP32": np.float32}


class Refused(Exception):
    pass


class Answer:
    """A stream's responses; a tensor by name is all of its elements, in order."""

    def __init__(self, responses) -> None:
        self.tensors: dict[str, list] = {}
        for response in responses:
            if response.error_message:
                raise Refused(response.error_message)
            message = response.infer_response
            for output, raw in zip(message.outputs, message.raw_output_contents, strict=True):
                if output.datatype == "BYTES":
                    values = deserialize_bytes_tensor(raw).tolist()
                else:
                    values = np.frombuffer(raw, NUMPY[output.datatype]).tolist()
                assert int(np.prod(output.shape)) == len(values)
                self.tensors.setdefault(output.name, []).extend(values)

    def __getitem__(self, name: str) -> list:
        return self.tensors[name]

    @property
    def text(self) -> str:
        return b"".join(self["text_output"]).decode(errors="replace")


@pytest.fixture
def ask(stack):
    numbers = iter(range(10**6))
    with grpc.insecure_channel(f"127.0.0.1:{stack.triton_grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def asked(text=PROMPT, model="demo", sampling=GREEDY, **fields) -> Answer:
            message = codec.encode(
                EngineRequest(
                    id=f"engine-{next(numbers)}",
                    model=ModelCard(name=model, triton_model=model, facts=FACTS),
                    text=text,
                    sampling=sampling,
                    timeout_s=30,
                    **fields,
                )
            )
            del message.outputs[:]  # all of them
            message.parameters.pop("guide_may_be_pending", None)  # it waits where others ask again
            return Answer(stub.ModelStreamInfer(iter([message])))

        yield asked


def test_ends_are_where_they_are_asked_for(ask):
    whole = ask(max_tokens=60)
    assert whole["finish_reason"] == [b"stop"]
    ids = whole["output_ids"]
    place = ids.index(ids[3])
    stopped = ask(max_tokens=60, sampling=Sampling(temperature=0.0, stop_token_ids=(ids[3],)))
    assert stopped["output_ids"] == ids[: place + 1], "the stop token is in the output"
    assert stopped["finish_reason"] == [b"stop"]
    on = ask(max_tokens=len(ids) + 5, sampling=Sampling(temperature=0.0, ignore_eos=True))
    assert len(on["output_ids"]) == len(ids) + 5
    assert on["finish_reason"] == [b"length"]
    late = Sampling(temperature=0.0, min_tokens=len(ids) + 3)
    assert len(ask(max_tokens=len(ids) + 9, sampling=late)["output_ids"]) >= len(ids) + 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"constraint": Constraint(GuideKind.REGEX, "(ab")}, "guided_decoding_guide"),
        ({"constraint": Constraint(GuideKind.JSON_SCHEMA, "[")}, "guided_decoding_guide"),
        ({"sampling": Sampling(temperature=-1.0)}, "temperature"),
        ({"sampling": Sampling(top_log_probs=21)}, "num_top_log_probs"),
        ({"sampling": Sampling(allowed_token_ids=(10**6,))}, "allowed_token_ids"),
        ({"sampling": Sampling(logit_bias=((-1, 1.0),))}, "logit_bias"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(ask, fields, param):
    with pytest.raises(Refused) as refused:
        ask(max_tokens=5, **fields)
    refusal = json.loads(str(refused.value).split(", ", 1)[1])
    assert refusal["code"] == "invalid_parameter"
    assert refusal["param"] == param
    assert refusal["message"]


def test_a_prompt_that_begins_like_an_earlier_one_is_prefilled_from_the_cache(ask):
    text = "The quick brown fox jumps over the lazy dog. " * 4
    first = ask(text, max_tokens=2)
    again = ask(text + "And then?", max_tokens=2)
    salted = ask(text, max_tokens=2, cache_salt="another tenant")
    assert first["num_cached_tokens"] == salted["num_cached_tokens"] == [0]
    assert again["num_cached_tokens"][0] >= first["num_input_tokens"][0] - 32


def test_the_engine_and_the_proxy_call_a_model_by_one_name(stack, client):
    served = {model.root for model in client.models.list()}
    text = httpx.get(f"http://127.0.0.1:{stack.triton_metrics_port}/metrics").text
    labelled = set(re.findall(r'^engine_\w+\{model="([^"]+)"', text, re.MULTILINE))
    assert labelled == served


def test_streams_decode_together_and_the_numbers_say_so(stack, ask):
    """On a busy machine the client's threads come one after the other, barrier or not."""
    before, together = stack.settled_engine("endless"), Barrier(8)

    def one(number: int) -> None:
        together.wait()
        ask(f"n{number}", "endless", max_tokens=800)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))
    after = stack.settled_engine("endless")
    steps = after["decode_steps"] - before["decode_steps"]
    tokens = after["decode_tokens"] - before["decode_tokens"]
    assert tokens == 8 * 799, "the first of each comes from prefill"
    assert tokens / steps > 1.3, "rows in an average step; one after the other it is 1"
    assert after["prefill_tokens"] > before["prefill_tokens"]
    assert after["decode_seconds"] > before["decode_seconds"]
    assert after["rows_decoding"] == after["rows_prefilling"] == after["kv_row_bytes"] == 0
    assert after["kv_cached_bytes"] > 0
    assert after["requests_finished"] - before["requests_finished"] == 8
