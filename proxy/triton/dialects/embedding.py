"""Our embedding models, see model_repository/embedding: several rows a call, one response."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import replace

from tritonclient.grpc import service_pb2

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ProxyError
from proxy.domain.model import ModelFacts, Pooling
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import TextPrompt, TokenPrompt
from proxy.triton import codec
from proxy.triton.dialects.dialect import Declared, Read, raw_outputs, without_inputs
from proxy.triton.tensors import Value

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
        adopted = request.model.facts.adopted
        assert adopted is not None
        message = without_inputs(request)
        rows = request.batch
        texts = [each for each in rows if isinstance(each, TextPrompt)]
        ids = [each.ids for each in rows if isinstance(each, TokenPrompt)]
        given: dict[str, Value | None] = {
            "dimensions": [request.embeds] * len(rows) if request.embeds else None,
            "max_prompt_tokens": [request.prompt_cap] * len(rows) if request.prompt_cap else None,
            "text_pair": None if request.pair is None else [each.pair or "" for each in texts],
            "text_input": [each.text for each in texts] or None,
            "input_ids": _padded(ids) if ids else None,
        }
        for name, value in given.items():
            if value is not None:
                datatype = adopted.inputs[name]
                raw, elements = codec.raw_elements(datatype, value)
                shape = (len(rows), elements // len(rows))
                message.inputs.add(name=name, datatype=datatype, shape=shape)
                message.raw_input_contents.append(raw)
        return codec.streamed(message)

    def reader(self, request: EngineRequest, prompt_tokens: int | None) -> Read:
        def read(response: service_pb2.ModelInferResponse) -> codec.StreamMessage:
            """Raises MalformedResponse, ForeignReceipt."""
            is_final = response.parameters["triton_final_response"].bool_param
            if not (raw := raw_outputs(response)):
                return codec.StreamMessage(None, is_final)
            ids = codec.bytes_elements(raw.get("pooled_for", b""))
            if ids != (request.id.encode(),) * len(request.batch):
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


def _padded(rows: Sequence[Sequence[int]]) -> list[int]:
    """All rows, one after the other, each as long as the longest."""
    longest = max(map(len, rows))
    return [one for ids in rows for one in (*ids, *[PADDING] * (longest - len(ids)))]
