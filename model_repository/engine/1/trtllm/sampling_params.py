"""A GenerationInput -> TensorRT-LLM's SamplingParams. Refuses what TensorRT-LLM does not support.

TensorRT-LLM's defaults are greedy decoding and a seed of 0, so every parameter is always set.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from grammars.compilation import rewrite
from lora_adapters import named
from port import RESUME_PARAM, BadParameter, GenerationInput, Guide, SamplingParams
from trtllm.library import PYTORCH, Library

SEED_BITS = 63
TOP_K_AT_MOST = 1024  # its kernels silently reduce a higher one to this
BANNED = -10_000.0  # a bias; -inf for a whole vocabulary gives NaN, which ends the executor


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingTranslator:
    """logits_size: the width of the model's logits, and so the length of a bias.

    max_log_probs: how many of the likeliest tokens to request with log-probabilities, None for as
    many as the caller asks for, see build_engines/engine_limits.py.
    """

    library: Library
    adapters: Mapping[str, Any]
    backend: str
    end_ids: tuple[int, ...]
    logits_size: int
    max_log_probs: int | None
    has_guides: bool

    def translate(self, generation: GenerationInput) -> Any:
        """tensorrt_llm.SamplingParams. Raises BadParameter."""
        sampling = generation.sampling
        top_k = 0 if sampling.top_k >= self.logits_size else sampling.top_k
        end_id, *other_ends = self.end_ids or (-1,)  # it has room for one; others are stop tokens
        stops = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else other_ends)}
        _check(generation, stops)
        self._check_known("stop_token_ids", sampling.stop_token_ids.difference(self.end_ids))
        params = self.library.sampling_params(
            # and no ignore_eos, with which 1.3 also drops the stop tokens (its base_worker.py)
            end_id=-1 if sampling.ignore_eos else end_id,
            pad_id=end_id,
            max_tokens=generation.max_tokens,
            detokenize=False,
            stop_token_ids=sorted(stops) or None,
            include_stop_str_in_output=True,  # otherwise it removes tokens that it has sent before
            seed=secrets.randbits(SEED_BITS) if sampling.seed is None else sampling.seed,
            embedding_bias=self._bias(sampling),
            guided_decoding=self._guide(generation.guide),
            logprobs=self._log_probs(sampling.log_probs),
            **_drawing(sampling, top_k),
            **sampling.changed(),
            **self._penalty_range(generation),
        )
        if sampling.bad_words:  # there is no public field for words of several tokens
            params.bad = []
            params._bad_word_ids = [list(word) for word in sampling.bad_words if word]
        return params

    def extras(self, generation: GenerationInput) -> dict[str, Any]:
        """Further keyword arguments of generate_async. Raises BadParameter."""
        extras: dict[str, Any] = {}
        if generation.cache_salt:
            extras["cache_salt"] = generation.cache_salt
        if generation.priority:
            extras["priority"] = unit_priority(generation.priority)
        if generation.lora_name:
            extras["lora_request"] = named(self.adapters, generation.lora_name)
        for name in extras:
            if name not in self.library.generate_arguments:
                raise BadParameter(
                    name, f"TensorRT-LLM {self.library.version} does not support {name}"
                )
        return extras

    def _log_probs(self, wanted: int | None) -> int | None:
        return wanted if wanted is None or self.max_log_probs is None else self.max_log_probs

    def _bias(self, sampling: SamplingParams) -> Any:
        if not sampling.logit_bias and sampling.allowed_token_ids is None:
            return None
        import torch

        self._check_known("logit_bias", (token for token, _ in sampling.logit_bias))
        bias = torch.zeros(self.logits_size, dtype=torch.float32)
        if sampling.allowed_token_ids is not None:
            self._check_known("allowed_token_ids", sampling.allowed_token_ids)
            bias.fill_(BANNED)
            bias[list(sampling.allowed_token_ids)] = 0.0
        for token, value in sampling.logit_bias:
            bias[token] += value
        return bias

    def _check_known(self, param: str, tokens: Iterable[int]) -> None:
        for token in tokens:
            if not 0 <= token < self.logits_size:
                raise BadParameter(
                    param, f"{param} names token {token}, which is outside the vocabulary of "
                    f"{self.logits_size} tokens",
                )  # fmt: skip

    def _guide(self, guide: Guide | None) -> Any:
        if guide is None:
            return None
        if not self.has_guides:
            raise BadParameter(
                "guided_decoding_guide_type", "this model was started without guided decoding"
            )
        make = self.library.guided_decoding_params
        text = rewrite(guide.kind, guide.text)
        match guide.kind:
            case "json" | "json_schema":
                return make(json=text)
            case "regex":
                return make(regex=text)
            case "ebnf_grammar":
                return make(grammar=text)
            case "structural_tag" if self.backend == PYTORCH:
                return make(structural_tag=text)
        raise BadParameter(
            "guided_decoding_guide_type", f"{guide.kind!r} needs TensorRT-LLM's PyTorch backend"
        )

    def _penalty_range(self, generation: GenerationInput) -> dict[str, int]:
        """Makes presence and frequency penalties count only the output (from 1.2 on)."""
        sampling = generation.sampling
        is_needed = bool(sampling.presence_penalty or sampling.frequency_penalty)
        if not is_needed or "prompt_ignore_length" not in self.library.sampling_arguments:
            return {}
        return {"prompt_ignore_length": len(generation.prompt_ids)}


def check_resume(generation: GenerationInput) -> None:
    """Raises BadParameter for an answer that another engine has begun."""
    if generation.generated_ids:
        raise BadParameter(
            RESUME_PARAM,
            "TensorRT-LLM cannot continue an answer: it would count the generated tokens as the "
            "prompt's",
        )


def check_echo(generation: GenerationInput) -> None:
    """Raises BadParameter for an echo with log-probabilities."""
    if generation.echoes_prompt and generation.sampling.log_probs is not None:
        raise BadParameter(
            "echo_prompt",
            "TensorRT-LLM does not return the log-probabilities of the prompt's tokens",
        )


def unit_priority(priority: int) -> float:
    """Maps any integer to TensorRT-LLM's range from 0 to 1, in the same order; 0 becomes 0.5."""
    return 0.5 + 0.5 * priority / (1 + abs(priority))


def _check(generation: GenerationInput, stops: set[int]) -> None:
    sampling = generation.sampling
    if sampling.min_tokens and stops:
        raise BadParameter(
            "min_tokens",
            "TensorRT-LLM supports min_tokens only for requests with a single end token",
        )
    if sampling.allowed_token_ids is not None and generation.guide is not None:
        raise BadParameter(
            "allowed_token_ids",
            "TensorRT-LLM cannot combine allowed_token_ids with a guide",
        )


def _drawing(sampling: SamplingParams, top_k: int) -> dict[str, Any]:
    """`top_k`: 0 for the whole vocabulary."""
    if sampling.temperature == 0 or sampling.top_p == 0 or top_k == 1:
        return {"top_k": 1}
    if top_k > TOP_K_AT_MOST:
        raise BadParameter(
            "top_k", f"top_k is {top_k}: TensorRT-LLM accepts at most {TOP_K_AT_MOST}, or 0 for all"
        )
    return {"temperature": sampling.temperature, "top_k": top_k, "top_p": sampling.top_p}
