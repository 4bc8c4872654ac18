"""A Triton request of the engine -> GenerationInput. Raises BadParameter for a wrong value."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from port import RESUME_PARAM, SCALARS, BadParameter, GenerationInput, Guide, SamplingParams


def generation_input(request: Any) -> GenerationInput:
    """Raises port.BadParameter."""
    kind, guide = _text(request, "guided_decoding_guide_type"), None
    if kind:
        guide = Guide.of(kind, _text(request, "guided_decoding_guide"))
    prompt_ids, generated_ids = _split_ids(request)
    return GenerationInput(
        prompt_ids=prompt_ids,
        generated_ids=generated_ids,
        max_tokens=int(scalar(request, "request_output_len")),
        sampling=_sampling(request),
        guide=guide,
        priority=int(scalar(request, "priority") or 0),
        cache_salt=_text(request, "cache_salt"),
        lora_name=_text(request, "lora_name"),
        echoes_prompt=bool(scalar(request, "echo_prompt")) and not generated_ids,
        images=tuple(_elements(request, "image").tolist()),
    )


def prompt_tokens(request: Any) -> int:
    """Without the generated ones; at least 0, also where resume_from is wrong."""
    return max(0, _elements(request, "input_ids").size - _resumed(request))


def timeout_s(request: Any) -> float | None:
    """How long the request may take from now on; None for no timeout.

    Raises:
        port.BadParameter: the timeout is below one millisecond.
    """
    timeout_ms = scalar(request, "timeout_ms")
    if timeout_ms is not None and timeout_ms < 1:
        raise BadParameter("timeout_ms", f"timeout_ms is {timeout_ms}, must be at least 1")
    return None if timeout_ms is None else timeout_ms / 1000


def lease_id(request: Any) -> str:
    """The id of the request's lease, see leases.py; empty if it has none.

    It is a request parameter, because Triton copies these to every step of an ensemble.
    """
    return str(json.loads(request.parameters() or "{}").get("lease", ""))


def tokenized_for(request: Any) -> str | None:
    """The id of the request that the tokenizer answered; None without a tokenizer before it."""
    answered = scalar(request, "tokenized_for")
    return None if answered is None else str(answered.decode())


def scalar(request: Any, name: str) -> Any:
    """The one element of a tensor as a Python value; None if the request lacks the tensor."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    element = tensor.as_numpy().ravel()[0]
    return element if isinstance(element, bytes) else element.item()


def _resumed(request: Any) -> int:
    return int(scalar(request, "resume_from") or 0)


def _split_ids(request: Any) -> tuple[list[int], list[int]]:
    """The prompt's ids, and the generated ones after them."""
    ids, resumed = _elements(request, "input_ids").tolist(), _resumed(request)
    prompt = len(ids) - resumed
    if resumed and not 0 < prompt < len(ids):
        raise BadParameter(
            RESUME_PARAM,
            f"resume_from is {resumed}, must be from 0 to {len(ids) - 1}: input_ids has "
            f"{len(ids)} tokens, and at least one of them is the prompt's",
        )
    return ids[:prompt], ids[prompt:]


def _sampling(request: Any) -> SamplingParams:
    given = {field: scalar(request, tensor) for field, tensor in SCALARS.items()}
    allowed = _elements(request, "allowed_token_ids").tolist()
    bias_ids = _elements(request, "logit_bias_ids").tolist()
    bias_values = _elements(request, "logit_bias_values").tolist()
    return SamplingParams(
        **{field: value for field, value in given.items() if value is not None},
        logit_bias=tuple(zip(bias_ids, bias_values, strict=True)),
        allowed_token_ids=tuple(allowed) or None,
        bad_words=_words(_elements(request, "bad_words_list")),
        stop_token_ids=frozenset(_elements(request, "stop_token_ids").tolist()),
        log_probs=_log_probs(request),
    )


def _log_probs(request: Any) -> int | None:
    if not scalar(request, "return_log_probs"):
        return None
    return int(scalar(request, "num_top_log_probs") or 0)


def _words(flat: npt.NDArray[np.int32]) -> tuple[tuple[int, ...], ...]:
    """Reads TensorRT-LLM's word list [2, n]: all ids joined, then where each word ends, then -1."""
    ids, ends = flat.reshape(2, -1).tolist()
    starts = [0, *ends]
    return tuple(
        tuple(ids[start:end]) for start, end in zip(starts, ends, strict=False) if end >= 0
    )


def _text(request: Any, name: str) -> str:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return "" if tensor is None else str(tensor.as_numpy().ravel()[0].decode())


def _elements(request: Any, name: str) -> npt.NDArray[Any]:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return np.empty(0, np.int32) if tensor is None else tensor.as_numpy().ravel()
