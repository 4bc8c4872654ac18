"""A GenerationInput -> vLLM's SamplingParams. Refuses what vLLM does not support.

vLLM does not check the types of what it gets, and a wrong one ends its engine process for all
requests. So only values of port.SamplingParams are passed, each of the type that upstream declares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grammars.compilation import as_ebnf, reason
from port import CONTEXT_LENGTH_EXCEEDED, RESUME_PARAM, BadParameter, GenerationInput, Guide
from vllm_engine.library import Library

# vLLM's names of parameters -> ours, if they differ.
PARAMS = {"logprobs": "num_top_log_probs", "prompt_logprobs": "num_top_log_probs"}
TOO_LONG = "longer than the maximum model length"  # with images: the tokenizer counts the rest
PARAMS |= dict.fromkeys(("input_tokens", "prompt_token_ids"), "prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingTranslator:
    """logits_size: the width of the model's logits."""

    library: Library
    end_ids: tuple[int, ...]
    logits_size: int

    def translate(self, generation: GenerationInput, ebnf: str | None) -> Any:
        """vLLM's SamplingParams. ebnf: the guide, see `guide_text`. Raises BadParameter."""
        sampling = generation.sampling
        # A guide is over before the end token, and an answer ends with its guide.
        ignores_end = sampling.ignore_eos and ebnf is None
        stops = {*sampling.stop_token_ids, *(() if ignores_end else self.end_ids)}
        is_greedy = sampling.temperature == 0 or sampling.top_p == 0
        bad_words = self._bad_words(sampling.bad_words)
        try:
            return self.library.sampling_params(
                temperature=0.0 if is_greedy else sampling.temperature,
                top_p=1.0 if is_greedy else sampling.top_p,
                top_k=sampling.top_k,
                seed=sampling.seed,
                logit_bias=_summed(sampling.logit_bias),
                allowed_token_ids=_list(sampling.allowed_token_ids),
                stop_token_ids=sorted(stops),
                ignore_eos=ignores_end,
                max_tokens=max(1, generation.max_tokens),  # 0: an echo with log-probabilities
                logprobs=sampling.log_probs,
                prompt_logprobs=sampling.log_probs if generation.echoes_prompt else None,
                structured_outputs=self._guide(ebnf),
                detokenize=False,
                output_kind=self.library.delta,
                _bad_words_token_ids=bad_words,
                **sampling.changed(),
            )
        except self.library.refused as error:
            raise refusal(error) from error

    def _guide(self, ebnf: str | None) -> Any:
        return None if ebnf is None else self.library.structured_outputs(grammar=ebnf)

    def _bad_words(self, words: tuple[tuple[int, ...], ...]) -> list[list[int]] | None:
        """vLLM checks its own field for words that are texts, not this one."""
        for token in (token for word in words for token in word):
            if not 0 <= token < self.logits_size:
                raise BadParameter(
                    "bad_words", f"bad_words names token {token}, which is outside the vocabulary "
                    f"of {self.logits_size} tokens",
                )  # fmt: skip
        return [list(word) for word in words if word] or None


def guide_text(guide: Guide) -> str:
    """The guide as EBNF, so that vLLM enforces what the onnx runtime does: its own conversion of
    schemas has other bounds for whitespace, and refuses keywords that a finished answer is checked
    for. Takes milliseconds; raises BadParameter.
    """
    try:
        return as_ebnf(guide.kind, guide.text)
    except Exception as error:
        message = f"the guide cannot be compiled: {reason(error)}"
        raise BadParameter("guided_decoding_guide", message) from error


def check_resume(generation: GenerationInput) -> None:
    """Raises BadParameter for an answer that another engine has begun."""
    if generation.generated_ids:
        raise BadParameter(
            RESUME_PARAM,
            "vLLM cannot continue an answer: it would count the generated tokens as the prompt's",
        )


def refusal(error: Exception) -> BadParameter:
    """vLLM's error about a request's value, as ours."""
    name, message = getattr(error, "parameter", None) or "", f"vLLM refuses the request: {error}"
    if TOO_LONG in message:
        return BadParameter("prompt", message, CONTEXT_LENGTH_EXCEEDED)
    return BadParameter(PARAMS.get(name, name), message)


def _list(ids: tuple[int, ...] | None) -> list[int] | None:
    return None if ids is None else list(ids)


def _summed(bias: tuple[tuple[int, float], ...]) -> dict[int, float] | None:
    found: dict[int, float] = {}
    for token, value in bias:
        found[token] = found.get(token, 0.0) + value
    return found or None
