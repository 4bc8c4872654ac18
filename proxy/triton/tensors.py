"""The proxy's half of the tensor contract, as rows. Read by `codec` and `catalog`.

The other half is model_repository/ensemble/config.pbtxt; tests/contract and the catalog compare
them. A new parameter is one row here and one entry there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard, ModelFacts

CONTRACT_VERSION = "3"
# Models of contract 2 lack the input resume_from, and so the capability `resume`.
SUPPORTED_VERSIONS = ("2", CONTRACT_VERSION)
CPP_RUNTIME = "tensorrtllm"  # as Triton calls the backend

Datatype = Literal["BYTES", "INT32", "UINT64", "FP32", "BOOL"]
# bytes: elements that are already packed
Value = str | bytes | float | Sequence[int] | Sequence[float] | Sequence[str]


@dataclass(frozen=True, slots=True)
class InputTensor:
    """An input and where its value comes from; None and () leave it out. Shape [1, elements].

    `value`: an attrgetter where that is enough: it costs half of a lambda, for each request.

    capability: what a model that declares it can do (domain.model); None if it is required.
    """

    name: str
    datatype: Datatype
    value: Callable[[EngineRequest], Value | None]
    capability: str | None = None


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """An output, which is requested if `is_wanted`."""

    name: str
    datatype: Datatype
    is_wanted: Callable[[EngineRequest], bool] = lambda _: True
    capability: str | None = None


def _sampling(name: str, datatype: Datatype) -> InputTensor:
    """A field of Sampling under its own name."""
    return InputTensor(name, datatype, attrgetter(f"sampling.{name}"), name)


def _bias(request: EngineRequest, index: int) -> Sequence[float] | None:
    pairs = request.sampling.logit_bias
    return [pair[index] for pair in pairs] if pairs else None


def _input_ids(request: EngineRequest) -> Sequence[int] | None:
    """The prompt's ids, then those of the answer that were generated before."""
    if not request.generated:
        return request.token_ids
    return (*(request.token_ids or ()), *request.generated)


def _prompt_limit(request: EngineRequest) -> int | None:
    limit = request.prompt_limit
    return None if limit is None else limit.tokens or -1


def _keeps_start(request: EngineRequest) -> bool | None:
    return None if request.prompt_limit is None else request.prompt_limit.keeps_start


def _guide(request: EngineRequest) -> tuple[str, str] | tuple[None, None]:
    constraint = request.constraint
    return (None, None) if constraint is None else (constraint.kind.value, constraint.text)


def _adapter(model: ModelCard) -> str | None:
    return None if model.parent is None else model.name


def _timeout_ms(request: EngineRequest) -> int | None:
    """A second line of defence: the proxy's own deadline starts earlier and passes first."""
    if "deadline" not in request.model.capabilities:
        return None
    return max(1, math.ceil(request.timeout_s * 1000))


def is_cpp(facts: ModelFacts) -> bool:
    """Whether it runs on NVIDIA's C++ backend, which differs in some tensors."""
    return facts.runtime == CPP_RUNTIME


def has_receipts(model: ModelCard) -> bool:
    """Whether its detokenizer says which ids each answer belongs to, see codec.decode."""
    return "receipt" in model.capabilities


def _wants_ids(request: EngineRequest) -> bool:
    """Also where the last id determines the finish reason, see finish_reason."""
    if has_receipts(request.model):
        return True
    if request.keeps_ids and "token_ids" in request.model.capabilities:
        return True
    return request.wants_token_ids or is_cpp(request.model.facts)


def _reports_queue(request: EngineRequest) -> bool:
    return "queue_time" in request.model.capabilities


def _reports_times(request: EngineRequest) -> bool:
    return "engine_times" in request.model.capabilities


def _wants_log_probs(request: EngineRequest) -> bool:
    return request.sampling.top_log_probs is not None


def _wants_alternatives(request: EngineRequest) -> bool:
    return bool(request.sampling.top_log_probs)


TEXT_OUTPUT = OutputTensor("text_output", "BYTES")
NUM_INPUT_TOKENS = OutputTensor("num_input_tokens", "INT32")
NUM_CACHED_TOKENS = OutputTensor("num_cached_tokens", "INT32")
QUEUE_TIME = OutputTensor("queue_time_us", "INT32", _reports_queue, "queue_time")
FINISH_REASON = OutputTensor("finish_reason", "BYTES")
PREFILL_TIME = OutputTensor("prefill_time_us", "INT32", _reports_times, "engine_times")
DECODE_TIME = OutputTensor("decode_time_us", "INT32", _reports_times, "engine_times")
OUTPUT_IDS = OutputTensor("output_ids", "INT32", _wants_ids, "token_ids")
LOG_PROBS = OutputTensor("output_log_probs", "FP32", _wants_log_probs, "log_probs")
TOP_LOG_PROBS = OutputTensor("top_log_probs", "FP32", _wants_alternatives, "top_log_probs")
TOP_IDS = OutputTensor(
    "top_log_prob_ids",
    "INT32",
    lambda r: _wants_alternatives(r) and (r.wants_log_prob_ids or has_receipts(r.model)),
    "log_prob_ids",
)
RECEIPT = OutputTensor("receipt", "INT32", lambda r: has_receipts(r.model), "receipt")
TOP_TEXT = OutputTensor("top_log_prob_text", "BYTES", _wants_alternatives, "top_log_probs")

INPUTS = (
    InputTensor("text_input", "BYTES", attrgetter("text")),
    InputTensor("plain_spans", "INT32", lambda r: r.plain_spans or None, "plain_spans"),
    InputTensor("input_ids", "INT32", _input_ids),
    InputTensor("resume_from", "INT32", lambda r: len(r.generated) or None, "resume"),
    InputTensor("add_special_tokens", "BOOL", attrgetter("add_special_tokens")),
    InputTensor("max_tokens", "INT32", attrgetter("max_tokens")),
    InputTensor("echo_prompt", "BOOL", lambda r: r.echoes_prompt or None, "echo_prompt"),
    InputTensor("truncate_prompt_tokens", "INT32", _prompt_limit, "prompt_limit"),
    InputTensor("truncate_keeps_start", "BOOL", _keeps_start, "prompt_limit"),
    _sampling("temperature", "FP32"),
    _sampling("top_k", "INT32"),
    _sampling("top_p", "FP32"),
    _sampling("min_p", "FP32"),
    _sampling("seed", "UINT64"),
    _sampling("repetition_penalty", "FP32"),
    _sampling("presence_penalty", "FP32"),
    _sampling("frequency_penalty", "FP32"),
    InputTensor("logit_bias_ids", "INT32", lambda r: _bias(r, 0), "logit_bias"),
    InputTensor("logit_bias_values", "FP32", lambda r: _bias(r, 1), "logit_bias"),
    _sampling("allowed_token_ids", "INT32"),
    _sampling("bad_words", "BYTES"),
    _sampling("min_tokens", "INT32"),
    _sampling("ignore_eos", "BOOL"),
    _sampling("stop_token_ids", "INT32"),
    InputTensor("return_log_probs", "BOOL", lambda r: _wants_log_probs(r) or None, "log_probs"),
    InputTensor(
        "num_top_log_probs", "INT32", lambda r: r.sampling.top_log_probs or None, "top_log_probs"
    ),
    InputTensor("guided_decoding_guide_type", "BYTES", lambda r: _guide(r)[0], "constraint"),
    InputTensor("guided_decoding_guide", "BYTES", lambda r: _guide(r)[1], "constraint"),
    InputTensor("priority", "INT32", attrgetter("priority"), "priority"),
    InputTensor("cache_salt", "BYTES", attrgetter("cache_salt"), "cache_salt"),
    InputTensor("lora_name", "BYTES", lambda r: _adapter(r.model), "lora"),
    InputTensor("default_max_tokens", "INT32", attrgetter("token_cap"), "limits"),
    InputTensor("max_prompt_tokens", "INT32", attrgetter("prompt_cap"), "limits"),
    InputTensor("timeout_ms", "INT32", _timeout_ms, "deadline"),
)
OUTPUTS = (
    TEXT_OUTPUT,
    NUM_INPUT_TOKENS,
    NUM_CACHED_TOKENS,
    QUEUE_TIME,
    FINISH_REASON,
    PREFILL_TIME,
    DECODE_TIME,
    OUTPUT_IDS,
    LOG_PROBS,
    TOP_LOG_PROBS,
    TOP_IDS,
    TOP_TEXT,
    RECEIPT,
)

# Outputs that the C++ backend lacks.
_NOT_IN_CPP = (NUM_CACHED_TOKENS, QUEUE_TIME, FINISH_REASON, PREFILL_TIME, DECODE_TIME)

# The inputs of the tokenizer model, which is called directly when nothing is generated.
_TEXT = ("text_input", "plain_spans", "add_special_tokens")
_PROMPT = (*_TEXT, "input_ids", "resume_from", "max_tokens", "bad_words")
_LIMIT = (
    "echo_prompt",
    "truncate_prompt_tokens",
    "truncate_keeps_start",
    "default_max_tokens",
    "max_prompt_tokens",
)
_GUIDE = ("guided_decoding_guide_type", "guided_decoding_guide")
TOKENIZER_INPUTS = tuple(row for row in INPUTS if row.name in (*_PROMPT, *_LIMIT, *_GUIDE))
TOKENIZER_OUTPUTS = (
    OutputTensor("input_ids", "INT32"),
    OutputTensor("request_output_len", "INT32"),
    OutputTensor("tokenized_for", "BYTES", lambda r: has_receipts(r.model), "receipt"),
)

# A stop goes directly to the engine model, under the request's id. All but `stop` are dummies.
STOP_INPUTS = (
    InputTensor("input_ids", "INT32", lambda _: (0,)),
    InputTensor("request_output_len", "INT32", lambda _: 0),
    InputTensor("stop", "BOOL", lambda _: True),
)
# A call to the engine model that stays open, see streams.leases; only our engines take it.
LEASE_INPUTS = (*STOP_INPUTS[:2], InputTensor("lease", "BOOL", lambda _: True))
# The C++ backend requires one more input.
_CPP_STOP_INPUTS = (*STOP_INPUTS, InputTensor("input_lengths", "INT32", lambda _: 0))


def outputs_of(facts: ModelFacts) -> tuple[OutputTensor, ...]:
    """The outputs of the model's ensemble."""
    return tuple(row for row in OUTPUTS if row not in _NOT_IN_CPP) if is_cpp(facts) else OUTPUTS


def stop_inputs_of(facts: ModelFacts) -> tuple[InputTensor, ...]:
    """The inputs of a stop for its engine."""
    return _CPP_STOP_INPUTS if is_cpp(facts) else STOP_INPUTS
