"""The tokenizer and detokenizer asked alone: messages out, answers and refusals in."""

from __future__ import annotations

import asyncio
import struct
import zlib

import grpc
import pytest
from tritonclient.grpc import service_pb2

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import (
    ForeignAnswer,
)
from proxy.domain.model import ModelCard
from proxy.domain.request import Sampling
from proxy.triton.tokenizer import TritonTokenizer
from tests.doubles.engine import CARD

REQUEST = EngineRequest(
    id="r1",
    model=CARD,
    text="hi",
    add_special_tokens=False,
    max_tokens=5,
    timeout_s=9,
    sampling=Sampling(temperature=0.5, bad_words=("bad",)),
    constraint=Constraint(GuideKind.REGEX, "a+"),
)


class AnsweringClient:
    """A TritonClient whose unary calls raise one by one, then give these outputs; keeps what it is
    sent.
    """

    def __init__(self, *errors: Exception, **outputs: bytes) -> None:
        self.stub = self
        self.ended: list[ModelCard] = []
        self.errors = list(errors)
        self.outputs = outputs
        self.sent: list[service_pb2.ModelInferRequest] = []

    async def ModelInfer(self, message, timeout):  # the stub's own name
        self.sent.append(message)
        if self.errors:
            raise self.errors.pop(0)
        if "text_output" in self.outputs and "receipt" not in self.outputs:
            mark = struct.pack("<I", zlib.crc32(message.id.encode()))
            self.outputs["receipt"] = message.raw_input_contents[0] + mark
        response = service_pb2.ModelInferResponse()
        for name, raw in self.outputs.items():
            response.outputs.add(name=name)
            response.raw_output_contents.append(raw)
        return response

    async def end_detokenizer(self, model):
        self.ended.append(model)


R1 = struct.pack("<I", 2) + b"r1"


def int32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


def test_an_admission_is_asked_again_while_its_guide_is_pending():
    refused = '{"code": "guide_pending", "param": "guided_decoding_guide", "message": "not yet"}'
    pending = failure(grpc.StatusCode.INVALID_ARGUMENT, refused)
    outputs = {"input_ids": int32(4), "request_output_len": int32(7), "tokenized_for": R1}
    client = AnsweringClient(pending, pending, **outputs)
    assert asyncio.run(TritonTokenizer(client).admit(REQUEST)).ids == (4,)
    assert len(client.sent) == 3


LATE = '{"code": "invalid_parameter", "param": "p", "message": "m", "request_id": "r0"}'


@pytest.mark.parametrize(
    "client",
    [
        AnsweringClient(input_ids=int32(4), request_output_len=int32(7), tokenized_for=b""),
        AnsweringClient(
            input_ids=int32(4), request_output_len=int32(7), tokenized_for=R1.replace(b"r1", b"r0")
        ),
        AnsweringClient(failure(grpc.StatusCode.INVALID_ARGUMENT, LATE)),
    ],
)
def test_an_admission_of_another_request_is_refused_and_triton_restarted(client):
    with pytest.raises(ForeignAnswer):
        asyncio.run(TritonTokenizer(client).admit(REQUEST))
    assert client.ended == [CARD]


@pytest.mark.parametrize("receipt", [b"", int32(8, 9, 0), int32(9, 8)])
def test_the_bytes_of_other_tokens_are_refused_and_triton_restarted(receipt):
    client = AnsweringClient(text_output=struct.pack("<I", 2) + b"ab", receipt=receipt)
    with pytest.raises(ForeignAnswer):
        asyncio.run(TritonTokenizer(client).token_bytes(CARD, [8, 9]))
    assert client.ended == [CARD]
