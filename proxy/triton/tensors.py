"""The proxy's half of the tensor contract, as rows. Read by `codec` and `catalog`.

The other half is model_repository/ensemble/config.pbtxt; tests/contract and the catalog compare
them. A new parameter is a row here and a line of `input_values`, or one of Sampling, and an entry
there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard, ModelFacts
from proxy.domain.request import SAMPLING, Datatype

CONTRACT_VERSION = "3"
# Models of contract 2 lack the input resume_from, and so the capability `resume`.
SUPPORTED_VERSIONS = ("2", CONTRACT_VERSION)
CPP_RUNTIME = "tensorrtllm"  # as Triton calls the backend

# bytes: elements that are already packed
Value = str | bytes | float | Sequence[int] | Sequence[float] | Sequence[str]


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output. The shape of an input is [1, elements].

    capability: what a model that declares it can do (domain.model); None if it is required.
    """

    name: str
    datatype: Datatype
    capability: str | None = None


def is_cpp(facts: ModelFacts) -> bool:
    """Whether it runs on NVIDIA's C++ backend, which differs in some tensors."""
    return facts.runtime == CPP_RUNTIME


def has_receipts(model: ModelCard) -> bool:
    """Whether its detokenizer says which ids each answer belongs to, see codec.decode."""
    return "receipt" in model.capabilities


TEXT_OUTPUT = "text_output"
NUM_INPUT_TOKENS = "num_input_tokens"
NUM_CACHED_TOKENS = "num_cached_tokens"
QUEUE_TIME = "queue_time_us"
PROMPT_BLOCKS = "prompt_blocks"
BLOCKS = "blocks"
FINISH_REASON = "finish_reason"
PREFILL_TIME = "prefill_time_us"
DECODE_TIME = "decode_time_us"
OUTPUT_IDS = "output_ids"
LOG_PROBS = "output_log_probs"
TOP_LOG_PROBS = "top_log_probs"
TOP_IDS = "top_log_prob_ids"
TOP_TEXT = "top_log_prob_text"
RECEIPT = "receipt"
TOKENIZED_FOR = "tokenized_for"

_sampling_values = attrgetter(*SAMPLING)

INPUTS = (
    Tensor("text_input", "BYTES"),
    Tensor("plain_spans", "INT32", "plain_spans"),
    Tensor("input_ids", "INT32"),
    Tensor("resume_from", "INT32", "resume"),
    Tensor("add_special_tokens", "BOOL"),
    Tensor("max_tokens", "INT32"),
    Tensor("echo_prompt", "BOOL", "echo_prompt"),
    Tensor("truncate_prompt_tokens", "INT32", "prompt_limit"),
    Tensor("truncate_keeps_start", "BOOL", "prompt_limit"),
    *(Tensor(name, datatype, name) for name, datatype in SAMPLING.items()),
    Tensor("logit_bias_ids", "INT32", "logit_bias"),
    Tensor("logit_bias_values", "FP32", "logit_bias"),
    Tensor("return_log_probs", "BOOL", "log_probs"),
    Tensor("num_top_log_probs", "INT32", "top_log_probs"),
    Tensor("guided_decoding_guide_type", "BYTES", "constraint"),
    Tensor("guided_decoding_guide", "BYTES", "constraint"),
    Tensor("priority", "INT32", "priority"),
    Tensor("cache_salt", "BYTES", "cache_salt"),
    Tensor("lora_name", "BYTES", "lora"),
    Tensor("image", "BYTES", "images"),
    Tensor("default_max_tokens", "INT32", "limits"),
    Tensor("max_prompt_tokens", "INT32", "limits"),
    Tensor("timeout_ms", "INT32", "deadline"),
)
OUTPUTS = (
    Tensor(TEXT_OUTPUT, "BYTES"),
    Tensor(NUM_INPUT_TOKENS, "INT32"),
    Tensor(NUM_CACHED_TOKENS, "INT32"),
    Tensor(QUEUE_TIME, "INT32", "queue_time"),
    Tensor(PROMPT_BLOCKS, "UINT64", PROMPT_BLOCKS),
    Tensor(FINISH_REASON, "BYTES"),
    Tensor(PREFILL_TIME, "INT32", "engine_times"),
    Tensor(DECODE_TIME, "INT32", "engine_times"),
    Tensor(OUTPUT_IDS, "INT32", "token_ids"),
    Tensor(LOG_PROBS, "FP32", "log_probs"),
    Tensor(TOP_LOG_PROBS, "FP32", "top_log_probs"),
    Tensor(TOP_IDS, "INT32", "log_prob_ids"),
    Tensor(TOP_TEXT, "BYTES", "top_log_probs"),
    Tensor(RECEIPT, "INT32", "receipt"),
)
_NOT_IN_CPP = (
    NUM_CACHED_TOKENS,
    QUEUE_TIME,
    PROMPT_BLOCKS,
    FINISH_REASON,
    PREFILL_TIME,
    DECODE_TIME,
)

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
TOKENIZER_SALT = Tensor("cache_salt", "BYTES", "tokenizer_salt")
TOKENIZER_INPUTS = (
    *(row for row in INPUTS if row.name in (*_PROMPT, *_LIMIT, *_GUIDE)),
    TOKENIZER_SALT,
)
TOKENIZER_OUTPUTS = (
    Tensor("input_ids", "INT32"),
    Tensor("request_output_len", "INT32"),
    Tensor(TOKENIZED_FOR, "BYTES", "receipt"),
)

# A stop goes directly to the engine model, under the request's id. All but `stop` are dummies.
STOP_INPUTS = (
    Tensor("input_ids", "INT32"),
    Tensor("request_output_len", "INT32"),
    Tensor("stop", "BOOL"),
)
# A call to the engine model that stays open, see streams.leases; only our engines take it.
LEASE_INPUTS = (*STOP_INPUTS[:2], Tensor("lease", "BOOL"))
# A question for changes of its KV cache, by engines whose ensembles have the output prompt_blocks.
BLOCKS_INPUTS = (*STOP_INPUTS[:2], Tensor("blocks_after", "UINT64"))
# The C++ backend requires one more input.
CPP_STOP_INPUTS = (*STOP_INPUTS, Tensor("input_lengths", "INT32"))
CONTROL_VALUES: Mapping[str, Value] = {
    "input_ids": (0,),
    "request_output_len": 0,
    "input_lengths": 0,
    "stop": True,
    "lease": True,
}


def outputs_of(facts: ModelFacts) -> tuple[Tensor, ...]:
    """The outputs of the model's ensemble."""
    if not is_cpp(facts):
        return OUTPUTS
    return tuple(row for row in OUTPUTS if row.name not in _NOT_IN_CPP)


def stop_inputs_of(facts: ModelFacts) -> tuple[Tensor, ...]:
    """The inputs of a stop for its engine."""
    return CPP_STOP_INPUTS if is_cpp(facts) else STOP_INPUTS


# One function for all inputs: one for each row took a twentieth of the time of a request.
def input_values(request: EngineRequest) -> dict[str, Value | None]:
    """The values of INPUTS, and so of TOKENIZER_INPUTS; None and () leave an input out."""
    model, sampling, constraint = request.model, request.sampling, request.constraint
    limit, generated, bias = request.prompt_limit, request.generated, sampling.logit_bias
    values: dict[str, Value | None] = {
        "text_input": request.text,
        "plain_spans": request.plain_spans or None,
        # the prompt's ids, then those of the answer that were generated before
        "input_ids": (*(request.token_ids or ()), *generated) if generated else request.token_ids,
        "resume_from": len(generated) or None,
        "add_special_tokens": request.add_special_tokens,
        "max_tokens": request.max_tokens,
        "echo_prompt": request.echoes_prompt or None,
        "truncate_prompt_tokens": None if limit is None else limit.tokens or -1,
        "truncate_keeps_start": None if limit is None else limit.keeps_start,
        "logit_bias_ids": [token for token, _ in bias] if bias else None,
        "logit_bias_values": [value for _, value in bias] if bias else None,
        "return_log_probs": None if sampling.top_log_probs is None else True,
        "num_top_log_probs": sampling.top_log_probs or None,
        "guided_decoding_guide_type": None if constraint is None else constraint.kind.value,
        "guided_decoding_guide": None if constraint is None else constraint.text,
        "priority": request.priority,
        "cache_salt": request.cache_salt,
        "lora_name": None if model.parent is None else model.name,
        "image": [image.base64 for image in request.images] or None,
        "default_max_tokens": request.token_cap,
        "max_prompt_tokens": request.prompt_cap,
        "timeout_ms": None,
    }
    if "deadline" in model.capabilities:
        # a second line of defence: the proxy's own deadline starts earlier and passes first
        values["timeout_ms"] = max(1, math.ceil(request.timeout_s * 1000))
    values.update(zip(SAMPLING, _sampling_values(sampling), strict=True))
    return values


def wanted_outputs(request: EngineRequest) -> tuple[str, ...]:
    """Those of OUTPUTS that are read from the answer to this request."""
    capabilities, top_log_probs = request.model.capabilities, request.sampling.top_log_probs
    has_receipt, on_cpp = "receipt" in capabilities, is_cpp(request.model.facts)
    names = [TEXT_OUTPUT, NUM_INPUT_TOKENS]
    if not on_cpp:
        names += (NUM_CACHED_TOKENS, FINISH_REASON)
        if "queue_time" in capabilities:
            names.append(QUEUE_TIME)
        if PROMPT_BLOCKS in capabilities:
            names.append(PROMPT_BLOCKS)
        if "engine_times" in capabilities:
            names += (PREFILL_TIME, DECODE_TIME)
    keeps_ids = request.keeps_ids and "token_ids" in capabilities
    # the C++ backend's last id determines the finish reason, see MissingFinishReason
    if has_receipt or keeps_ids or request.wants_token_ids or on_cpp:
        names.append(OUTPUT_IDS)
    if top_log_probs is not None:
        names.append(LOG_PROBS)
    if top_log_probs:
        names += (TOP_LOG_PROBS, TOP_TEXT)
        if request.wants_log_prob_ids or has_receipt:
            names.append(TOP_IDS)
    if has_receipt:
        names.append(RECEIPT)
    return tuple(names)
