"""Changes the logits before a token is drawn: restrictions, bias, penalties, in this order.

A restriction that would forbid every remaining token is ignored. So the guide, which comes before,
always wins: a text that breaks its guide is useless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from port import SamplingParams
from sampling.bad_words import BadWords
from sampling.penalties import Penalties
from sampling.ranking import Logits
from sampling.restrictions import TokenIds, allow_only, ban, known


class LogitEdit(Protocol):
    """One parameter's change to the logits of one sequence."""

    def apply(self, row: Logits) -> None:
        """row: [vocab], changed in place."""

    def append(self, token_id: int) -> None:
        """A token was generated."""


class _Constant:
    """The base of edits that the output does not change."""

    def append(self, token_id: int) -> None:
        pass


class AllowedTokens(_Constant):
    """`allowed_token_ids`: no other token is generated."""

    def __init__(self, token_ids: Iterable[int], vocab_size: int) -> None:
        self._ids = known("allowed_token_ids", token_ids, vocab_size)

    def apply(self, row: Logits) -> None:
        allow_only(row, self._ids)


class MinTokens(_Constant):
    """`min_tokens`: the sequence does not end before. SamplerState drops it when it is over."""

    def __init__(self, ending_ids: TokenIds) -> None:
        self._ending_ids = ending_ids

    def apply(self, row: Logits) -> None:
        ban(row, self._ending_ids)


class LogitBias(_Constant):
    """`logit_bias`: a number to add to the logit of each listed token."""

    def __init__(self, bias: Sequence[tuple[int, float]], vocab_size: int) -> None:
        self._ids = known("logit_bias", (token for token, _ in bias), vocab_size)
        self._values = np.array([value for _, value in bias], np.float32)

    def apply(self, row: Logits) -> None:
        np.add.at(row, self._ids, self._values)


def edits_of(
    params: SamplingParams,
    prompt_ids: Sequence[int],
    generated_ids: Sequence[int],
    ending_ids: TokenIds,
    vocab_size: int,
) -> list[LogitEdit]:
    """The edits of one sequence, in order; a new parameter is a class and a row here.

    generated_ids: the beginning of its answer. ending_ids: the tokens that end the sequence.
    Raises BadParameter for a token outside the vocabulary.
    """
    found: list[LogitEdit] = []
    if params.allowed_token_ids is not None:
        found.append(AllowedTokens(params.allowed_token_ids, vocab_size))
    if any(params.bad_words):
        longest = max(map(len, params.bad_words))
        last_ids = [*prompt_ids[-longest:], *generated_ids[-longest:]]
        found.append(BadWords(params.bad_words, last_ids, vocab_size))
    if params.min_tokens > len(generated_ids):
        found.append(MinTokens(ending_ids))
    if params.logit_bias:
        found.append(LogitBias(params.logit_bias, vocab_size))
    if params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty:
        found.append(Penalties(params, prompt_ids, generated_ids, vocab_size))
    return found


def edit(logits: Logits, edits: Sequence[Sequence[LogitEdit]]) -> None:
    """logits: [rows, vocab], changed in place. edits: of each row."""
    with np.errstate(over="ignore"):  # beyond float32 a banned token stays banned
        for row, own in zip(logits, edits, strict=True):
            for one in own:
                one.apply(row)
