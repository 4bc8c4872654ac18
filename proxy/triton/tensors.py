"""The proxy's half of the tensor contract, as rows.

The other half is model_repository/ensemble/config.pbtxt; tests/contract and the catalog compare
them. A new parameter is one row here and one entry there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.domain.engine import EngineRequest

CONTRACT_VERSION = "2"

Datatype = Literal["BYTES", "INT32", "UINT64", "FP32", "BOOL"]
Value = str | float | Sequence[int] | Sequence[float] | Sequence[str]


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


def _column(pairs: Sequence[tuple[int, float]] | None, index: int) -> Sequence[float] | None:
    return [pair[index] for pair in pairs] if pairs else None


def _guide(request: EngineRequest) -> tuple[str, str] | tuple[None, None]:
    constraint = request.constraint
    return (None, None) if constraint is None else (constraint.kind.value, constraint.text)


def _is_given(value: object) -> bool | None:
    return None if value is None else True


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
    InputTensor("top_k", "INT32", lambda r: r.sampling.top_k),
    InputTensor("top_p", "FP32", lambda r: r.sampling.top_p),
    InputTensor("min_p", "FP32", lambda r: r.sampling.min_p),
    InputTensor("seed", "UINT64", lambda r: r.sampling.seed),
    InputTensor("repetition_penalty", "FP32", lambda r: r.sampling.repetition_penalty),
    InputTensor("presence_penalty", "FP32", lambda r: r.sampling.presence_penalty),
    InputTensor("frequency_penalty", "FP32", lambda r: r.sampling.frequency_penalty),
    InputTensor("logit_bias_ids", "INT32", lambda r: _column(r.sampling.logit_bias, 0)),
    InputTensor("logit_bias_values", "FP32", lambda r: _column(r.sampling.logit_bias, 1)),
    InputTensor("allowed_token_ids", "INT32", lambda r: r.sampling.allowed_token_ids),
    InputTensor("bad_words", "BYTES", lambda r: r.sampling.bad_words or None),
    InputTensor("min_tokens", "INT32", lambda r: r.sampling.min_tokens),
    InputTensor("ignore_eos", "BOOL", lambda r: r.sampling.ignore_eos),
    InputTensor("stop_token_ids", "INT32", lambda r: r.sampling.stop_token_ids or None),
    InputTensor("return_log_probs", "BOOL", lambda r: _is_given(r.sampling.top_log_probs)),
    InputTensor("num_top_log_probs", "INT32", lambda r: r.sampling.top_log_probs),
    InputTensor("guided_decoding_guide_type", "BYTES", lambda r: _guide(r)[0]),
    InputTensor("guided_decoding_guide", "BYTES", lambda r: _guide(r)[1]),
    InputTensor("priority", "INT32", lambda r: r.priority),
    InputTensor("cache_salt", "BYTES", lambda r: r.cache_salt),
)
OUTPUTS = (TEXT_OUTPUT, NUM_INPUT_TOKENS, NUM_CACHED_TOKENS, FINISH_REASON)

# What of it the tokenizer model takes, which is asked alone when nothing is to be generated.
_PROMPT = ("text_input", "input_ids", "add_special_tokens", "max_tokens", "bad_words")
_GUIDE = ("guided_decoding_guide_type", "guided_decoding_guide")
TOKENIZER_INPUTS = tuple(row for row in INPUTS if row.name in (*_PROMPT, *_GUIDE))
TOKENIZER_OUTPUTS = (
    OutputTensor("input_ids", "INT32"),
    OutputTensor("request_output_len", "INT32"),
)

# What ends a running request, sent to the engine model itself under the same request id.
# All but `stop` are dummies: TensorRT-LLM's backend requires them.
STOP_INPUTS = (
    InputTensor("input_ids", "INT32", lambda _: (0,)),
    InputTensor("request_output_len", "INT32", lambda _: 0),
    InputTensor("stop", "BOOL", lambda _: True),
)
