"""A request of ours -> the tensors of TensorRT-LLM's C++ backend, where they are not the same.

Only for the `tensorrtllm` backend (model_repository/tensorrt_llm/). Its defaults are not ours:
nothing said means greedy, a seed of 0 and no log-probabilities, so all is said always.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from admission import Refusal

SEED_BITS = 63
TOP_K_AT_MOST = 1024  # its kernels cut a higher one down to this, without a word
BANNED = -10_000.0  # to a logit; -inf for a whole vocabulary would give NaN
Array = npt.NDArray[Any]
# The elements of an input, none where it was not sent.
Elements = Callable[[str], list[Any]]


@dataclass(frozen=True, kw_only=True)
class ExecutorInputs:
    """`end_ids` end an answer; a bias has `logits_size` elements."""

    end_ids: tuple[int, ...]
    logits_size: int

    def of(self, given: Elements, prompt_tokens: int) -> dict[str, Array]:
        """By tensor name, each with its batch dimension of 1. Raises Refusal."""
        end_id, stops = self._ends(given)
        temperature, top_k, top_p = self._drawing(given)
        seed = _first(given, "seed", None)
        return {
            "input_lengths": np.array([[prompt_tokens]], dtype=np.int32),
            "end_id": np.array([[end_id]], dtype=np.int32),
            "stop_words_list": np.array([[stops, range(1, len(stops) + 1)]], dtype=np.int32),
            "embedding_bias": self._bias(given),
            "temperature": np.array([[temperature]], dtype=np.float32),
            "runtime_top_k": np.array([[top_k]], dtype=np.int32),
            "runtime_top_p": np.array([[top_p]], dtype=np.float32),
            "seed": np.array(
                [[secrets.randbits(SEED_BITS) if seed is None else seed]], dtype=np.uint64
            ),
            "streaming": np.array([[True]]),
            "return_num_input_tokens": np.array([[True]]),
        }

    def _ends(self, given: Elements) -> tuple[int, list[int]]:
        """The one end token that it takes, and the others, which become stop words."""
        end_id, *others = (-1,) if _first(given, "ignore_eos", False) else self.end_ids or (-1,)
        asked = given("stop_token_ids")
        self._check_known("stop_token_ids", set(asked).difference(self.end_ids))
        stops = list(dict.fromkeys([*others, *asked]))
        if _first(given, "min_tokens", 0) and stops:
            raise Refusal(
                "invalid_parameter",
                "min_tokens",
                "the backend holds back the model's end token alone, here are others",
            )
        return end_id, stops

    def _drawing(self, given: Elements) -> tuple[float, int, float]:
        """temperature, top_k, top_p: greedy is top_k 1, as it takes no temperature of 0."""
        temperature = _first(given, "temperature", 1.0)
        top_k, top_p = _first(given, "top_k", 0), _first(given, "top_p", 1.0)
        if temperature == 0 or top_p == 0 or top_k == 1:
            return 1.0, 1, 1.0
        if TOP_K_AT_MOST < top_k < self.logits_size:
            raise Refusal(
                "invalid_parameter",
                "top_k",
                f"top_k is {top_k}: the backend takes {TOP_K_AT_MOST} at most, or 0 for all",
            )
        return temperature, top_k if top_k < self.logits_size else 0, top_p

    def _bias(self, given: Elements) -> Array:
        """[1, logits_size], or [1, 0] where nothing is added."""
        allowed, biased = given("allowed_token_ids"), given("logit_bias_ids")
        if not allowed and not biased:
            return np.empty((1, 0), dtype=np.float32)
        if allowed and given("guided_decoding_guide_type"):
            raise Refusal(
                "invalid_parameter",
                "allowed_token_ids",
                "allowed_token_ids cannot be combined with a guide here",
            )
        self._check_known("allowed_token_ids", allowed)
        self._check_known("logit_bias", biased)
        bias = np.full(self.logits_size, BANNED if allowed else 0.0, dtype=np.float32)
        bias[allowed] = 0.0
        np.add.at(bias, biased, given("logit_bias_values"))
        return bias[None]

    def _check_known(self, param: str, tokens: Iterable[int]) -> None:
        for token in tokens:
            if not 0 <= token < self.logits_size:
                raise Refusal(
                    "invalid_parameter",
                    param,
                    f"{param} names token {token}, which is outside the vocabulary of "
                    f"{self.logits_size} tokens",
                )


def _first(given: Elements, name: str, default: Any) -> Any:
    elements = given(name)
    return elements[0] if elements else default
