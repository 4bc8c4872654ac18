"""Which tensors of the contract an engine cannot honour, by its version and kind.

TensorRT-LLM silently accepts most parameters that it ignores, so they must not be declared.
Sources: its docs/source/features/sampling.md, sampler.py (min_tokens counts the prompt's, too), and
issue 9442 (penalties ignored). The C++ backend's utils.cc (at 1929081) never passes a priority to
its executor::Request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sampler = Literal["TorchSampler", "TRTLLMSampler"]
PENALTIES = frozenset({"repetition_penalty", "presence_penalty", "frequency_penalty"})
LOG_PROBS = frozenset({"return_log_probs", "output_log_probs"})
ALTERNATIVES = frozenset(
    {"num_top_log_probs", "top_log_probs", "top_log_prob_ids", "top_log_prob_text"}
)
LORA = frozenset({"lora_name"})
QUEUE_TIME = frozenset({"queue_time_us"})  # the LLM API does not report when prefill begins
# It would start a guide, a seed and the counts of penalties and min_tokens anew.
RESUME = frozenset({"resume_from"})
GUIDES = frozenset({"guided_decoding_guide_type", "guided_decoding_guide"})
EVERY_KIND = ("json", "json_schema", "regex", "ebnf_grammar", "structural_tag")
MOST_ALTERNATIVES = 20  # TOP_LOG_PROBS_AT_MOST of the engine
PLAN_KINDS = EVERY_KIND[:-1]  # structural tags: only by xgrammar in the PyTorch backend
LLGUIDANCE_KINDS = EVERY_KIND[:-2]  # its grammars are Lark, and tags an error (grammar_matcher.py)
HAS_CACHE_SALT, HAS_PRIORITY, TORCH_SAMPLER_IS_WHOLE = (1, 1), (1, 3), (1, 3)
TORCH_SAMPLER_HAS_ALTERNATIVES = (1, 2)  # by pull request 7756; before, 6097: one token only


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtllmEngine:
    """One model on TensorRT-LLM.

    version: the package's, as (major, minor). is_prerelease: it is a release candidate of that
    version. backend: "pytorch" and "tensorrt" (engine plans) are the LLM API's, "cpp" is Triton's
    C++ backend. sampler: only "pytorch" uses it.
    """

    version: tuple[int, int]
    is_prerelease: bool = False
    backend: Literal["pytorch", "tensorrt", "cpp"]
    sampler: Sampler = "TRTLLMSampler"
    end_tokens: int = 1
    guides: Literal["xgrammar", "llguidance", "off"] = "xgrammar"
    has_adapters: bool = False
    is_speculative: bool = False

    def missing(self) -> frozenset[str]:
        """Names of the ensemble's tensors that this engine cannot honour."""
        found = set(self._always_missing())
        if self.end_tokens > 1:  # it holds back one of them
            found.add("min_tokens")
        if self.guides == "off":
            found |= GUIDES
        if self.is_speculative:
            found |= LOG_PROBS | ALTERNATIVES
        return frozenset(found)

    @property
    def max_log_probs(self) -> int:
        """The value of SamplingParams.logprobs for a request with log-probabilities.

        TensorRT-LLM reports the sampled token only if it is among the likeliest ones, so a sampler
        with alternatives is asked for the maximum. Others accept 1 only (pull request 6097).
        """
        return 1 if "num_top_log_probs" in self.missing() else MOST_ALTERNATIVES

    @property
    def guide_kinds(self) -> tuple[str, ...]:
        """The guide kinds that this engine supports. It ignores other kinds, or fails on them."""
        if self.guides == "llguidance":
            return LLGUIDANCE_KINDS
        return EVERY_KIND if self.backend == "pytorch" else PLAN_KINDS

    def _always_missing(self) -> set[str]:
        if self.backend == "cpp":  # tensorrt_llm/ensemble.pbtxt has none of the others
            return set()
        found = set(QUEUE_TIME | RESUME)
        if not self.has_adapters:
            found |= LORA
        if self.version < HAS_CACHE_SALT:
            found.add("cache_salt")
        if (self.version, not self.is_prerelease) < (HAS_PRIORITY, True):
            found.add("priority")
        if (
            self.backend == "tensorrt"
        ):  # they need the logits of every step: TensorRT-LLM issue 10810
            return found | LOG_PROBS | ALTERNATIVES
        return found | self._missing_of_sampler()

    def _missing_of_sampler(self) -> frozenset[str]:
        if self.sampler == "TRTLLMSampler":
            return ALTERNATIVES
        if self.version >= TORCH_SAMPLER_IS_WHOLE:
            return frozenset({"seed"})
        found = PENALTIES | {"min_p", "bad_words", "seed", "min_tokens"}
        return found if self.version >= TORCH_SAMPLER_HAS_ALTERNATIVES else found | ALTERNATIVES
