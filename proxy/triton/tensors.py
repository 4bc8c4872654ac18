"""The proxy's half of the tensor contract, as rows.

The other half is model_repository/ensemble/config.pbtxt; tests/contract and the catalog compare
them. A new parameter is one row here and one entry there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.domain.engine import EngineRequest

CONTRACT_VERSION = "1"

Datatype = Literal["BYTES", "INT32", "UINT64", "FP32", "BOOL"]
Value = str | float | Sequence[int]


@dataclass(frozen=True, slots=True)
class InputTensor:
    """An input and where its value comes from; None leaves it out. Shape [1, elements]."""

    name: str
    datatype: Datatype
    value: Callable[[EngineRequest], Value | None]


@dataclass(frozen=True, slots=True)
class OutputTensor:
    name: str
    datatype: Datatype


TEXT_OUTPUT = OutputTensor("text_output", "BYTES")
NUM_INPUT_TOKENS = OutputTensor("num_input_tokens", "INT32")
NUM_CACHED_TOKENS = OutputTensor("num_cached_tokens", "INT32")
FINISH_REASON = OutputTensor("finish_reason", "BYTES")

INPUTS = (
    InputTensor("text_input", "BYTES", lambda r: r.text),
    InputTensor("input_ids", "INT32", lambda r: r.token_ids),
    InputTensor("add_special_tokens", "BOOL", lambda r: r.add_special_tokens),
    InputTensor("max_tokens", "INT32", lambda r: r.max_tokens),
    InputTensor("temperature", "FP32", lambda r: r.sampling.temperature),
    InputTensor("top_p", "FP32", lambda r: r.sampling.top_p),
    InputTensor("seed", "UINT64", lambda r: r.sampling.seed),
)
OUTPUTS = (TEXT_OUTPUT, NUM_INPUT_TOKENS, NUM_CACHED_TOKENS, FINISH_REASON)

# What ends a running request, sent to the engine model itself under the same request id.
# All but `stop` are dummies: TensorRT-LLM's backend requires them.
STOP_INPUTS = (
    InputTensor("input_ids", "INT32", lambda _: (0,)),
    InputTensor("request_output_len", "INT32", lambda _: 0),
    InputTensor("stop", "BOOL", lambda _: True),
)
