"""Which tensors of the contract an engine cannot honor, by its version and kind.

TensorRT-LLM silently accepts most parameters that it ignores, so they must not be declared.
Sources: its docs/source/features/sampling.md, sampler.py (min_tokens counts the prompt's, too), and
issue 9442 (penalties ignored). The C++ backend's utils.cc (at 1929081) never passes a priority to
its executor::Request.

In July and August 2026 TorchSampler got penalties, bad words, min_p and seeds (its pull requests
16485, 16052, 16590, 17172; min_tokens since 12166), and 18232 removed TRTLLMSampler. 1.3.0rc25 is
the first candidate with all of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

Sampler = Literal["TorchSampler", "TRTLLMSampler"]
PENALTIES = frozenset({"repetition_penalty", "presence_penalty", "frequency_penalty"})
TORCH_SAMPLER_LACKED = PENALTIES | {"min_p", "bad_words", "seed", "min_tokens"}
LOG_PROBS = frozenset({"return_log_probs", "output_log_probs"})
ALTERNATIVES = frozenset(
    {"num_top_log_probs", "top_log_probs", "top_log_prob_ids", "top_log_prob_text"}
)
LORA = frozenset({"lora_name"})
IMAGES = frozenset({"image"})
BLOCKS = frozenset({"prompt_blocks"})  # and with them the reports of the KV cache
QUEUE_TIME = frozenset({"queue_time_us"})  # the LLM API does not report when prefill begins
# It would start a guide, a seed and the counts of penalties and min_tokens anew.
RESUME = frozenset({"resume_from"})
GUIDES = frozenset({"guided_decoding_guide_type", "guided_decoding_guide"})
EVERY_KIND = ("json", "json_schema", "regex", "ebnf_grammar", "structural_tag")
MOST_ALTERNATIVES = 20  # TOP_LOG_PROBS_AT_MOST of the engine
PLAN_KINDS = EVERY_KIND[:-1]  # structural tags: only by xgrammar in the PyTorch backend
LLGUIDANCE_KINDS = EVERY_KIND[:-2]  # its grammars are Lark, and tags an error (grammar_matcher.py)
# What vLLM refuses in a request to a model that speculates (SamplingParams._validate_spec_decode).
VLLM_SPECULATION_LACKS = frozenset({"min_p", "logit_bias"})
HAS_CACHE_SALT = Version("1.1.0a0")
TORCH_SAMPLER_HAS_ALTERNATIVES = Version("1.2.0a0")  # by 7756; before, 6097: one token only
# TorchSampler serves everything and is the only one; requests have priorities (12362).
TORCH_SAMPLER_IS_WHOLE = Version("1.3.0rc25")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtllmEngine:
    """One model on TensorRT-LLM.

    backend: "pytorch" and "tensorrt" (engine plans) are the LLM API's, "cpp" is Triton's C++
    backend. sampler: of "pytorch" before TORCH_SAMPLER_IS_WHOLE.
    """

    version: Version
    backend: Literal["pytorch", "tensorrt", "cpp"]
    sampler: Sampler = "TRTLLMSampler"
    end_tokens: int = 1
    guides: Literal["xgrammar", "llguidance", "off"] = "xgrammar"
    has_adapters: bool = False
    is_speculative: bool = False
    reports_blocks: bool = False

    def missing(self) -> frozenset[str]:
        """Names of the ensemble's tensors that this engine cannot honor."""
        found = set(self._always_missing())
        if self.end_tokens > 1:  # it holds back one of them
            found.add("min_tokens")
        if self.guides == "off":
            found |= GUIDES
        if self.is_speculative:
            found |= LOG_PROBS | ALTERNATIVES
            if self.backend == "pytorch":
                found |= self._missing_of_speculation()
        return frozenset(found)

    @property
    def max_log_probs(self) -> int | None:
        """The value of SamplingParams.logprobs for a request with log-probabilities; None: the
        number of alternatives that it asks for.

        Before 1.3.0rc25, TensorRT-LLM reports the sampled token only if it is among the likeliest
        ones, so a sampler with alternatives is asked for the maximum. Others accept 1 only (pull
        request 6097). Later it always reports it, and 0 asks for it alone.
        """
        if self.backend == "pytorch" and self.version >= TORCH_SAMPLER_IS_WHOLE:
            return None
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
        found = set(QUEUE_TIME | RESUME | IMAGES)
        if not self.has_adapters:
            found |= LORA
        if not self.reports_blocks:
            found |= BLOCKS
        if self.version < HAS_CACHE_SALT:
            found.add("cache_salt")
        if self.version < TORCH_SAMPLER_IS_WHOLE:
            found.add("priority")
        if (
            self.backend == "tensorrt"
        ):  # they need the logits of every step: TensorRT-LLM issue 10810
            return found | LOG_PROBS | ALTERNATIVES
        return found | self._missing_of_sampler()

    def _missing_of_sampler(self) -> frozenset[str]:
        if self.version >= TORCH_SAMPLER_IS_WHOLE:
            return frozenset()
        if self.sampler == "TRTLLMSampler":
            return ALTERNATIVES
        if self.version >= TORCH_SAMPLER_HAS_ALTERNATIVES:
            return TORCH_SAMPLER_LACKED
        return TORCH_SAMPLER_LACKED | ALTERNATIVES

    def _missing_of_speculation(self) -> frozenset[str]:
        """TRTLLMSampler never serves it (sampling.md), and later it honors the seed alone (17599).

        Penalties, min_p and bad words are refused there, or ignored.
        """
        if self.version >= TORCH_SAMPLER_IS_WHOLE:
            return TORCH_SAMPLER_LACKED - {"seed"}
        return TORCH_SAMPLER_LACKED


def vllm_missing(*, has_adapters: bool, is_speculative: bool, reads_images: bool) -> frozenset[str]:
    """Names of the ensemble's tensors that vLLM cannot honor."""
    found = RESUME | BLOCKS
    if not has_adapters:
        found |= LORA
    if not reads_images:
        found |= IMAGES
    return found | VLLM_SPECULATION_LACKS if is_speculative else found
