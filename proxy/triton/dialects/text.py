"""Any model that has a text in and a text out, by the tensors that models.yaml names."""

from __future__ import annotations

from collections.abc import Collection

from tritonclient.grpc import service_pb2

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ProxyError
from proxy.domain.model import TextTensors
from proxy.triton.dialects.dialect import Declared, Read, infer_request
from proxy.triton.dialects.text_answers import Answer, AnswerReader, named, token_limit


class TextModel:
    """See Dialect. `tensors.inputs` has fields of Sampling, and max_tokens."""

    def capabilities(self, declared: Declared) -> Collection[str] | None:
        """None of its own: see models.adoption."""
        if "BYTES" in declared.inputs.values() and "BYTES" in declared.outputs.values():
            return ()
        return None

    def notes(self, declared: Declared) -> list[str]:
        return ["a text model: name its tensors in models.yaml to serve it"]

    def encode(self, request: EngineRequest) -> service_pb2.ModelInferRequest:
        names = _tensors(request)
        values = {
            one: token_limit(request) if one == "max_tokens" else getattr(request.sampling, one)
            for one in names.inputs
        }
        return infer_request(
            request, ((names.prompt, request.text or ""), *named(values, names.inputs))
        )

    def reader(self, request: EngineRequest, prompt_tokens: int | None) -> Read:
        names = _tensors(request)
        answer = Answer(
            text=names.text,
            is_cumulative=names.is_cumulative,
            prompt=(request.text or "").encode() if names.repeats_prompt else b"",
        )
        return AnswerReader(request, answer, prompt_tokens).read

    def stop(self, request: EngineRequest) -> None:
        return None

    def error(self, message: str, request: EngineRequest) -> ProxyError | None:
        return None


def _tensors(request: EngineRequest) -> TextTensors:
    adopted = request.model.facts.adopted
    if adopted is None or adopted.tensors is None:
        raise ValueError(f"the model {request.model.name!r} has no tensors in models.yaml")
    return adopted.tensors
