"""The tokenizer and detokenizer of a model, called directly; see domain.tokenizer.Tokenizer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.errors import EngineFailed, GuidePending
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.tokenizer import AdmittedPrompt
from triton_openai.proxy.triton import codec
from triton_openai.proxy.triton.client import TritonClient
from triton_openai.proxy.triton.errors import error_of_call
from triton_openai.proxy.triton.guide_retries import GuideRetries

DETOKENIZE_TIMEOUT_S = 30.0


class TritonTokenizer:
    """Unary calls on the client's channel."""

    def __init__(self, client: TritonClient) -> None:
        self._client = client

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        message = codec.encode_admission(request)
        retries = GuideRetries(request.timeout_s)
        while True:
            try:
                outputs = await self._infer(message, timeout_s=retries.left_s)
                break
            except GuidePending as error:
                await retries.wait(error)
        ids = _int32(outputs, "input_ids")
        return AdmittedPrompt(ids=ids, max_tokens=_int32(outputs, "request_output_len")[0])

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        message = codec.encode_detokenization(model, ids)
        outputs = await self._infer(message, timeout_s=DETOKENIZE_TIMEOUT_S)
        return codec.bytes_elements(outputs["text_output"])

    async def _infer(
        self, message: service_pb2.ModelInferRequest, *, timeout_s: float
    ) -> dict[str, bytes]:
        """Output name -> its elements in their wire format."""
        try:
            answer: Any = await self._client.stub.ModelInfer(message, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise error_of_call(error) from error
        named = zip(answer.outputs, answer.raw_output_contents, strict=True)
        return {output.name: raw for output, raw in named}


def _int32(outputs: dict[str, bytes], name: str) -> tuple[int, ...]:
    raw = outputs[name]
    if len(raw) < 4:
        raise EngineFailed(f"Triton's tokenizer returned no {name}.")
    return struct.unpack(f"<{len(raw) // 4}i", raw)
