"""A request -> the tensors of TensorRT-LLM's C++ backend that differ from the contract's.

`build` copies it next to the tokenizer's model.py. The backend's defaults are greedy decoding, a
seed of 0 and no log-probabilities, so every tensor is always set.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from refusal import INVALID_PARAMETER, Refusal

SEED_BITS = 63
TOP_K_AT_MOST = 1024  # the backend's kernels silently reduce a higher one to this
BANNED = -10_000.0  # a bias; -inf for a whole vocabulary gives NaN
Array = npt.NDArray[Any]
# The elements of an input tensor; none if the request lacks it.
Elements = Callable[[str], list[Any]]


@dataclass(frozen=True, kw_only=True)
class ExecutorInputs:
    """`end_ids` end an answer; a bias has `logits_size` elements."""

    end_ids: tuple[int, ...]
    logits_size: int

    def of(self, elements: Elements, *, prompt_tokens: int) -> dict[str, Array]:
        """Arrays by tensor name, each with its batch dimension of 1. Raises Refusal."""
        end_id, stops = self._ends(elements)
        temperature, top_k, top_p = self._drawing(elements)
        seed = _first(elements, "seed", None)
        return {
            "input_lengths": np.array([[prompt_tokens]], dtype=np.int32),
            "end_id": np.array([[end_id]], dtype=np.int32),
            "stop_words_list": np.array([[stops, range(1, len(stops) + 1)]], dtype=np.int32),
            "embedding_bias": self._bias(elements),
            "temperature": np.array([[temperature]], dtype=np.float32),
            "runtime_top_k": np.array([[top_k]], dtype=np.int32),
            "runtime_top_p": np.array([[top_p]], dtype=np.float32),
            "seed": np.array(
                [[secrets.randbits(SEED_BITS) if seed is None else seed]], dtype=np.uint64
            ),
            "streaming": np.array([[True]]),
            "return_num_input_tokens": np.array([[True]]),
        }

    def _ends(self, elements: Elements) -> tuple[int, list[int]]:
        """The backend's one end token, and the other end tokens, which become stop words."""
        ignores_eos = _first(elements, "ignore_eos", False)
        end_id, *others = (-1,) if ignores_eos else self.end_ids or (-1,)
        given = elements("stop_token_ids")
        self._check_known("stop_token_ids", set(given).difference(self.end_ids))
        stops = list(dict.fromkeys([*others, *given]))
        if _first(elements, "min_tokens", 0) and stops:
            raise Refusal(
                INVALID_PARAMETER,
                "min_tokens",
                "the backend supports min_tokens only for requests with a single end token",
            )
        return end_id, stops

    def _drawing(self, elements: Elements) -> tuple[float, int, float]:
        """temperature, top_k, top_p; greedy is top_k 1, because a temperature of 0 is invalid."""
        temperature = _first(elements, "temperature", 1.0)
        top_k, top_p = _first(elements, "top_k", 0), _first(elements, "top_p", 1.0)
        if temperature == 0 or top_p == 0 or top_k == 1:
            return 1.0, 1, 1.0
        if TOP_K_AT_MOST < top_k < self.logits_size:
            raise Refusal(
                INVALID_PARAMETER,
                "top_k",
                f"top_k is {top_k}: the backend accepts at most {TOP_K_AT_MOST}, or 0 for all",
            )
        return temperature, top_k if top_k < self.logits_size else 0, top_p

    def _bias(self, elements: Elements) -> Array:
        """[1, logits_size], or [1, 0] without a bias."""
        allowed, biased = elements("allowed_token_ids"), elements("logit_bias_ids")
        if not allowed and not biased:
            return np.empty((1, 0), dtype=np.float32)
        if allowed and elements("guided_decoding_guide_type"):
            raise Refusal(
                INVALID_PARAMETER,
                "allowed_token_ids",
                "the backend cannot combine allowed_token_ids with a guide",
            )
        self._check_known("allowed_token_ids", allowed)
        self._check_known("logit_bias", biased)
        bias = np.full(self.logits_size, BANNED if allowed else 0.0, dtype=np.float32)
        bias[allowed] = 0.0
        np.add.at(bias, biased, elements("logit_bias_values"))
        return bias[None]

    def _check_known(self, param: str, tokens: Iterable[int]) -> None:
        for token in tokens:
            if not 0 <= token < self.logits_size:
                raise Refusal(
                    INVALID_PARAMETER,
                    param,
                    f"{param} names token {token}, which is outside the vocabulary of "
                    f"{self.logits_size} tokens",
                )


def _first(elements: Elements, name: str, default: Any) -> Any:
    found = elements(name)
    return found[0] if found else default
