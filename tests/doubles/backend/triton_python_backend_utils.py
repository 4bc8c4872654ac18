"""The little of Triton's Python backend that responses and the reading of requests use."""

from __future__ import annotations

from dataclasses import dataclass, field

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


@dataclass
class Tensor:
    name: str
    array: object


class TritonError(Exception):
    INVALID_ARG, INTERNAL, CANCELLED = "invalid argument", "internal", "cancelled"

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class InferenceResponse:
    output_tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None


def get_input_tensor_by_name(request: object, name: str) -> object | None:
    """The tensor in a tests.doubles.tensor_request.TensorRequest."""
    return request.tensor(name)
