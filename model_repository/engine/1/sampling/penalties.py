"""`repetition_penalty`, `presence_penalty`, `frequency_penalty`: less of the same tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from port import SamplingParams
from sampling.ranking import Logits


class Penalties:
    """See edits.LogitEdit.

    repetition: of tokens in prompt and output, positive logits are divided by it, negative ones
    multiplied. frequency and presence: of tokens in the output only, by OpenAI's formula.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        generated_ids: Sequence[int],
        vocab_size: int,
    ) -> None:
        self._repetition = params.repetition_penalty
        self._frequency = params.frequency_penalty
        self._presence = params.presence_penalty
        counts_prompt = self._repetition != 1
        self._seen = SeenTokens(
            (token for token in (prompt_ids if counts_prompt else ()) if 0 <= token < vocab_size),
            generated_ids,
        )

    def apply(self, row: Logits) -> None:
        ids, counts = self._seen.ids, self._seen.counts
        values = row[ids]
        if self._repetition != 1:
            values = np.where(values > 0, values / self._repetition, values * self._repetition)
        values -= self._frequency * counts + self._presence * (counts > 0)
        row[ids] = values

    def append(self, token_id: int) -> None:
        self._seen.append(token_id)


class SeenTokens:
    """The tokens of a sequence, and how often it generated each.

    It grows by one token at constant cost: two parallel arrays without gaps.
    """

    def __init__(self, prompt_ids: Iterable[int], generated_ids: Iterable[int] = ()) -> None:
        counts = Counter(generated_ids)
        unique = list(dict.fromkeys(chain(prompt_ids, counts)))
        self._slots = {token_id: slot for slot, token_id in enumerate(unique)}
        self._ids = np.zeros(2 * len(unique) + 64, np.int64)
        self._ids[: len(unique)] = unique
        self._counts = np.zeros(len(self._ids), np.float32)
        if counts:
            self._counts[: len(unique)] = [counts[token_id] for token_id in unique]

    def append(self, token_id: int) -> None:
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[slot] = token_id
        self._counts[slot] += 1

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Every token of the sequence once."""
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> npt.NDArray[np.float32]:
        """How often each of `ids` was generated; 0 for a token that is only in the prompt."""
        return self._counts[: len(self._slots)]
