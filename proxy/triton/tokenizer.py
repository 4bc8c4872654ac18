"""The tokenizer and detokenizer of a model, called directly; see domain.tokenizer.Tokenizer."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import (
    EngineFailed,
    ForeignAnswer,
    GuidePending,
    unsupported,
)
from proxy.domain.model import ModelCard
from proxy.domain.tokenizer import AdmittedPrompt
from proxy.triton import codec, tensors
from proxy.triton.client import GuideRetries, TritonClient
from proxy.triton.errors import error_of_call, foreign_answer
from proxy.triton.local_tokenizer import LocalTokenizer, local_tokenizer

DETOKENIZE_TIMEOUT_S = 30.0


class TritonTokenizer:
    """Unary calls on the client's channel."""

    def __init__(self, client: TritonClient) -> None:
        self._client = client

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        if request.model.facts.adopted is not None:
            return (await _local(request.model).admit(request))[0]
        message = codec.encode_admission(request)
        left_s, retries = request.timeout_s, None
        while True:
            try:
                outputs = await self._infer(message, request.model, timeout_s=left_s)
                break
            except GuidePending as error:
                retries = retries or GuideRetries(request.timeout_s)
                left_s = await retries.wait(error)
        if tensors.has_receipts(request.model):
            answered = codec.bytes_elements(outputs.get(tensors.TOKENIZED_FOR, b""))
            if answered != (request.id.encode(),):
                await self._client.end_detokenizer(request.model)
                raise foreign_answer(f"the tokenizer answered for {answered}")
        ids = _int32(outputs, "input_ids")
        return AdmittedPrompt(ids=ids, max_tokens=_int32(outputs, "request_output_len")[0])

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        if model.facts.adopted is not None:
            return tuple(map(_local(model).token_bytes, ids))
        request_id = uuid.uuid4().hex
        message = codec.encode_detokenization(model, request_id, ids)
        outputs = await self._infer(message, model, timeout_s=DETOKENIZE_TIMEOUT_S)
        if tensors.has_receipts(model):
            sent = {**outputs, tensors.OUTPUT_IDS: message.raw_input_contents[0]}
            try:
                codec.check_receipt(sent, codec.receipt_mark(request_id))
            except codec.ForeignReceipt as error:
                await self._client.end_detokenizer(model)
                raise foreign_answer(str(error)) from error
        return codec.bytes_elements(outputs[tensors.TEXT_OUTPUT])

    async def _infer(
        self, message: service_pb2.ModelInferRequest, model: ModelCard, *, timeout_s: float
    ) -> dict[str, bytes]:
        """Output name -> its elements in their wire format."""
        try:
            answer: Any = await self._client.stub.ModelInfer(message, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            found = error_of_call(error, message.id)
            if isinstance(found, ForeignAnswer):
                await self._client.end_detokenizer(model)
            raise found from error
        named = zip(answer.outputs, answer.raw_output_contents, strict=True)
        return {output.name: raw for output, raw in named}


def _local(model: ModelCard) -> LocalTokenizer:
    """Raises InvalidRequest."""
    adopted = model.facts.adopted
    if adopted is None or adopted.tokenizer is None:
        raise unsupported(
            f"The model {model.name!r} has no tokenizer here: only its engine can count tokens.",
            param="model",
        )
    return local_tokenizer(adopted.tokenizer)


def _int32(outputs: dict[str, bytes], name: str) -> tuple[int, ...]:
    raw = outputs[name]
    if len(raw) < 4:
        raise EngineFailed(f"Triton's tokenizer returned no {name}.")
    return struct.unpack(f"<{len(raw) // 4}i", raw)
