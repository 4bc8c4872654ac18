"""Our embedding models, see model_repository/embedding: several rows a call, one response."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Collection, Sequence
from dataclasses import replace

from tritonclient.grpc import service_pb2

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ProxyError
from proxy.domain.model import ModelFacts, Pooling
from proxy.domain.output import FinishReason, TokenDelta
from proxy.triton import codec
from proxy.triton.dialects.dialect import Declared, Read, raw_outputs

PADDING = -1  # of a row of ids


class Embedding:
    """See Dialect."""

    def capabilities(self, declared: Declared) -> Collection[str] | None:
        is_ours = (
            "task" in declared.parameters
            and declared.takes(text_input="BYTES", text_pair="BYTES", input_ids="INT32")
            and declared.takes(dimensions="INT32", max_prompt_tokens="INT32", end_process="BOOL")
            and declared.gives(pooled="FP32", num_input_tokens="INT32", pooled_for="BYTES")
        )
        if not is_ours:
            return None
        is_cross_encoder = declared.parameters["task"] == "score"
        return {"limits", "scores", *([] if is_cross_encoder else ["embeddings"])}

    def notes(self, declared: Declared) -> list[str]:
        return []

    def encode(self, request: EngineRequest) -> service_pb2.ModelInferRequest:
        rows = request.batch or (request,)
        model = request.model
        message = service_pb2.ModelInferRequest(model_name=model.triton_model, id=request.id)
        if model.version is not None:
            message.model_version = str(model.version)
        if request.token_ids is None:
            _add(message, "text_input", "BYTES", _texts([each.text or "" for each in rows]), rows)
        else:
            _add(message, "input_ids", "INT32", _padded(rows), rows)
        if request.pair is not None:
            _add(message, "text_pair", "BYTES", _texts([each.pair or "" for each in rows]), rows)
        for name, number in (
            ("dimensions", request.embeds),
            ("max_prompt_tokens", request.prompt_cap),
        ):
            if number:
                _add(message, name, "INT32", array("i", [number] * len(rows)).tobytes(), rows)
        return codec.streamed(message)

    def reader(self, request: EngineRequest, prompt_tokens: int | None) -> Read:
        def read(response: service_pb2.ModelInferResponse) -> codec.StreamMessage:
            """Raises MalformedResponse, ForeignReceipt."""
            is_final = response.parameters["triton_final_response"].bool_param
            if not (raw := raw_outputs(response)):
                return codec.StreamMessage(None, is_final)
            ids = codec.bytes_elements(raw.get("pooled_for", b""))
            if ids != (request.id.encode(),) * len(request.batch or (request,)):
                raise codec.ForeignReceipt(f"the embedding model answered for {ids[:1]}")
            tokens = sum(array("i", raw["num_input_tokens"]))
            delta = TokenDelta((), tokens, finish=FinishReason.STOP, embedding=raw["pooled"])
            return codec.StreamMessage(delta, is_final)

        return read

    def stop(self, request: EngineRequest) -> None:
        """Its call is cancelled, which has an effect while it waits in Triton's queue."""
        return None

    def error(self, message: str, request: EngineRequest) -> ProxyError | None:
        return None


def facts_of(declared: Declared, facts: ModelFacts) -> ModelFacts:
    """With what `build` wrote. Raises KeyError and ValueError."""
    given = declared.parameters
    return replace(
        facts,
        context_length=int(given["context_length"]),
        says_context=True,
        vocab_size=int(given["vocab_size"]),
        created=int(given["created"]),
        pooling=Pooling(
            is_cross_encoder=given["task"] == "score",
            width=int(given["width"]),
            dimensions=tuple(int(one) for one in given["dimensions"].split(",") if one),
        ),
    )


def _add(
    message: service_pb2.ModelInferRequest,
    name: str,
    datatype: str,
    raw: bytes,
    rows: Sequence[EngineRequest],
) -> None:
    elements = len(raw) // 4 // len(rows) if datatype == "INT32" else 1
    message.inputs.add(name=name, datatype=datatype, shape=(len(rows), elements))
    message.raw_input_contents.append(raw)


def _texts(texts: Sequence[str]) -> bytes:
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(each)) + each for each in encoded)


def _padded(rows: Sequence[EngineRequest]) -> bytes:
    given = [each.token_ids or () for each in rows]
    longest = max(map(len, given))
    found = array("i")
    for ids in given:
        found.extend(ids)
        found.extend([PADDING] * (longest - len(ids)))
    return found.tobytes()
