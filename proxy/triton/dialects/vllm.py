"""NVIDIA's vLLM backend: text and one JSON object in, text out.

Read in triton-inference-server/vllm_backend at 8de0c14 (2026-01-09): src/model.py,
src/utils/request.py, src/utils/vllm_backend_utils.py.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson
from tritonclient.grpc import service_pb2

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import (
    EngineFailed,
    InvalidRequest,
    ModelUnavailable,
    ProxyError,
    unsupported,
)
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from proxy.domain.request import SAMPLING
from proxy.triton import codec
from proxy.triton.dialects.dialect import (
    Declared,
    Read,
    Values,
    finish_of,
    infer_request,
    one_text,
    raw_outputs,
    tokens_of,
    too_long,
)
from proxy.triton.errors import UNAVAILABLE
from proxy.triton.local_tokenizer import LocalTokenizer, local_tokenizer

# vLLM's SamplingParams have our names. logit_bias is not among the capabilities: the backend hands
# JSON's keys, which are texts, to vLLM as token ids.
CAPABILITIES = frozenset({*SAMPLING, "max_tokens", "constraint", "lora", "special_text"})
EVERY_TOKEN = 2**31 - 1
LOG_PROBS = frozenset({"top_log_probs", "log_probs", "log_prob_ids", "token_ids"})
GUIDES = {
    GuideKind.JSON_SCHEMA: "json",
    GuideKind.REGEX: "regex",
    GuideKind.GRAMMAR: "grammar",
    GuideKind.STRUCTURAL_TAG: "structural_tag",
}
SEED_BITS = 63  # torch's seeds are signed; -1 means none
TOO_LONG = re.compile(r"longer than the maximum model length|maximum context length")
OF_PARAMETER = re.compile(r" ?\(parameter=(\w+), value=")
NO_LORA = re.compile(r"LoRA (feature|\S+) is not ")
WRONG_DIMENSIONS = re.compile(r"matryoshka", re.IGNORECASE)
NO_TASK = re.compile(r"does not support '(\w+)' request")
FAILED = b"error"
REFUSED = "Error generating stream: "
# What stands there of parameters that it could not make, and of its unexpected errors.
NO_REASONS = ("", "'NoneType' object has no attribute 'lora_name'")
NO_PARAMETERS = "The model server did not take the parameters of this request."
NOT_APART = (
    "a vLLM before 0.12 cannot keep the prefix caches of tenants apart: upgrade it, or set "
    "`prefix_cache: shared` for the model in models.yaml"
)
DIED = re.compile(r"EngineCore encountered an issue|EngineDeadError")


class Vllm:
    """See Dialect."""

    def capabilities(self, declared: Declared) -> Collection[str] | None:
        is_ours = (
            declared.is_decoupled
            and not declared.has_batches
            and declared.takes(text_input="BYTES", stream="BOOL", sampling_parameters="BYTES")
            and declared.takes(return_finish_reason="BOOL", return_num_output_tokens="BOOL")
            and declared.gives(text_output="BYTES", finish_reason="BYTES")
            and declared.gives(num_output_tokens="UINT32")
            and declared.required == {"text_input"}
        )
        if not is_ours:
            return None
        found = set(CAPABILITIES)
        if declared.takes(return_logprobs="BOOL") and declared.gives(logprobs="BYTES"):
            found |= LOG_PROBS
        if declared.takes(image="BYTES"):
            found.add("images")
        if declared.takes(embedding_request="BYTES", return_num_input_tokens="BOOL"):
            found.add("embeddings")
        return found

    def notes(self, declared: Declared) -> list[str]:
        return [] if declared.takes(return_logprobs="BOOL") else ["its version has no logprobs"]

    def encode(self, request: EngineRequest) -> service_pb2.ModelInferRequest:
        if request.embeds is not None:
            return infer_request(request, _embedding_values(request))
        return infer_request(
            request,
            (
                ("text_input", request.text or ""),
                ("image", [image.base64 for image in request.images] or None),
                ("stream", True),
                ("exclude_input_in_output", True),
                ("sampling_parameters", json.dumps(_parameters(request))),
                ("return_finish_reason", True),
                ("return_num_output_tokens", True),
                ("return_num_input_tokens", True),
                ("return_logprobs", _wants_log_probs(request) or None),
            ),
        )

    def reader(self, request: EngineRequest, prompt_tokens: int | None) -> Read:
        return _Reader(request).read if request.embeds is None else _read_embedding

    def stop(self, request: EngineRequest) -> None:
        """Single models see that their call was cancelled."""
        return None

    def error(self, message: str, request: EngineRequest) -> ProxyError | None:
        reason = message.removeprefix(REFUSED)
        if DIED.search(message):
            return ModelUnavailable(UNAVAILABLE, detail=message)
        if TOO_LONG.search(message):
            return too_long(reason)
        if NO_LORA.search(message):  # which goes on with the names of all others
            return unsupported("vLLM has no LoRA adapter of this name.", "model")
        if found := NO_TASK.search(message):
            return unsupported(f"This model cannot {found[1]}.", "model")
        if WRONG_DIMENSIONS.search(message):
            return unsupported("This model was not trained for these dimensions.", "dimensions")
        if found := OF_PARAMETER.search(message):
            reason = message[: found.start()].removeprefix(REFUSED)
            return InvalidRequest(reason, param=found[1])
        if not message.startswith(REFUSED):
            return None
        is_unknown = reason.strip() in NO_REASONS
        reason = "its log has the reason" if is_unknown else reason
        if request.constraint is not None:
            return _bad_guide(reason)
        if request.images:
            return unsupported(f"vLLM refused the images of this request: {reason}", "messages")
        if is_unknown and not request.reads_cache:
            return EngineFailed(NO_PARAMETERS, detail=f"{message}; {NOT_APART}")
        return None


def _bad_guide(reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"vLLM refused the request, which has a guide: {reason}", param="guided_decoding_guide"
    )


def _embedding_values(request: EngineRequest) -> Values:
    asked = {
        "input": request.text if request.token_ids is None else request.token_ids,
        "pooling_params": {"dimensions": [request.embeds]} if request.embeds else {},
    }
    return (
        ("text_input", ""),  # required, and not read
        ("embedding_request", json.dumps(asked)),
        ("return_num_input_tokens", True),
    )


def _read_embedding(response: service_pb2.ModelInferResponse) -> codec.StreamMessage:
    """Raises MalformedResponse."""
    is_final = response.parameters["triton_final_response"].bool_param
    if not (raw := raw_outputs(response)):
        return codec.StreamMessage(None, is_final)
    try:
        vector = array("f", orjson.loads(one_text(raw.get("text_output"))))
    except (ValueError, TypeError) as error:
        raise codec.MalformedResponse(f"an embedding that cannot be read: {error}") from error
    tokens = codec.first_int(raw.get("num_input_tokens")) or 0
    delta = TokenDelta((), tokens, finish=FinishReason.STOP, embedding=vector.tobytes())
    return codec.StreamMessage(delta, is_final)


def _wants_log_probs(request: EngineRequest) -> bool:
    """Token ids are the keys of log-probabilities, and come no other way."""
    return request.keeps_ids or _shows_tokens(request)


def _shows_tokens(request: EngineRequest) -> bool:
    return request.sampling.top_log_probs is not None or request.wants_token_ids


def _parameters(request: EngineRequest) -> dict[str, Any]:
    values = {name: getattr(request.sampling, name) for name in SAMPLING}
    found = {name: value for name, value in values.items() if value not in (None, ())}
    if (seed := request.sampling.seed) is not None:
        found["seed"] = seed % 2**SEED_BITS
    # vLLM's own default is 16; an answer that fills the context ends there
    found["max_tokens"] = request.max_tokens or EVERY_TOKEN
    if _wants_log_probs(request):
        found["logprobs"] = request.sampling.top_log_probs or 0
    if request.shows_specials:
        found["skip_special_tokens"] = False
    if request.includes_stop and request.sampling.stop_token_ids:
        found["include_stop_str_in_output"] = True
    if request.model.parent is not None:
        found["lora_name"] = request.model.name
    if not request.reads_cache:
        found["skip_reading_prefix_cache"] = True  # the backend passes no salt on
    if request.constraint is not None:
        found["structured_outputs"] = json.dumps(_guide(request.constraint))
    return found


def _guide(constraint: Constraint) -> dict[str, Any]:
    """StructuredOutputsParams' fields, which the backend takes as JSON inside JSON."""
    if constraint.kind is GuideKind.JSON:
        return {"json_object": True}
    return {GUIDES[constraint.kind]: constraint.text}


Entry = Sequence[tuple[int, Mapping[str, Any]]]  # token id -> its log-probability


class _Reader:
    def __init__(self, request: EngineRequest) -> None:
        adopted = request.model.facts.adopted
        self._is_first = True
        self._has_guide = request.constraint is not None
        self._has_log_probs = _wants_log_probs(request)
        self._shows_tokens = _shows_tokens(request)
        self._shows_specials = request.shows_specials
        self._top = request.sampling.top_log_probs
        self._tokenizer: LocalTokenizer | None = None
        if self._has_log_probs and adopted is not None and adopted.tokenizer is not None:
            self._tokenizer = local_tokenizer(adopted.tokenizer)

    def read(self, response: service_pb2.ModelInferResponse) -> codec.StreamMessage:
        is_final = response.parameters["triton_final_response"].bool_param
        raw = raw_outputs(response)
        if not raw:
            return codec.StreamMessage(None, is_final)
        text = one_text(raw.get("text_output"))
        tokens = codec.first_int(raw.get("num_output_tokens"))
        reason = one_text(raw.get("finish_reason"))
        if reason == FAILED and self._has_guide:
            raise _bad_guide("it cannot be compiled")
        delta = TokenDelta(
            tokens_of(text, 1 if tokens is None else tokens), finish=finish_of(reason)
        )
        if self._is_first:
            self._is_first = False
            delta.prompt_tokens = codec.first_int(raw.get("num_input_tokens"))
        if self._has_log_probs and (found := one_text(raw.get("logprobs"))) not in (b"", b"null"):
            self._add_log_probs(delta, text, found)
        return codec.StreamMessage(delta, is_final)

    def _add_log_probs(self, delta: TokenDelta, text: bytes, found: bytes) -> None:
        """Each token's entry has its own first, then the most likely ones."""
        try:
            given = json.loads(found)  # which has -Infinity where a guide leaves nothing else
            entries = [[(int(one), own) for one, own in each.items()] for each in given]
            own = [each[0] for each in entries]
        except (ValueError, AttributeError, IndexError) as error:
            raise codec.MalformedResponse(f"logprobs that cannot be read: {error}") from error
        delta.token_ids = tuple(token for token, _ in own)
        if self._shows_tokens:
            delta.token_bytes = self._bytes(text, own)
        if self._top is not None:
            delta.log_probs = tuple(self._log_prob(each) for each in entries)

    def _bytes(self, text: bytes, own: Entry) -> tuple[bytes, ...]:
        """Of each token. Without a tokenizer, what vLLM decoded it to, if that makes the text."""
        each = tuple(self._decoded(token, entry) for token, entry in own)
        if self._tokenizer is not None:
            return each
        return each if b"".join(each) == text else (*[b""] * (len(own) - 1), text)

    def _log_prob(self, entry: Entry) -> TokenLogProb:
        token, own = entry[0]
        possible = (one for one in entry if one[1]["logprob"] > -math.inf)
        ranked = sorted(possible, key=lambda one: one[1]["rank"])[: self._top]
        top = tuple(
            Alternative(self._decoded(token, one), one["logprob"], token) for token, one in ranked
        )
        return TokenLogProb(own["logprob"], top, token)

    def _decoded(self, token: int, entry: Mapping[str, Any]) -> bytes:
        if self._tokenizer is not None:
            return self._tokenizer.token_bytes(token, shows_special=self._shows_specials)
        return str(entry["decoded_token"] or "").encode()
