"""What the sampling of one sequence remembers, from admission to its end, also when preempted."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from port import RESUME_PARAM, BadParameter, SamplingParams
from sampling.edits import MinTokens, edits_of
from sampling.restrictions import as_array, known

_BLOCK = 64  # makes a single number cheap
_PER_COUNTER = 4  # Philox makes four numbers of 64 bits from one counter


class RandomNumbers:
    """Uniform in [0, 1). `seed`: 0 to 2**64 - 1, or None for a random one."""

    def __init__(self, seed: int | None) -> None:
        self._key = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self._block_index = -1
        self._block: list[float] = []

    def at(self, n: int) -> float:
        """The n-th number, from 0."""
        index, offset = divmod(n, _BLOCK)
        if index != self._block_index:
            philox = np.random.Philox(key=self._key, counter=index * (_BLOCK // _PER_COUNTER))
            self._block = np.random.Generator(philox).random(_BLOCK).tolist()
            self._block_index = index
        return self._block[offset]


class SamplerState:
    """Call `append` after every generated token, whether it was sampled or forced by a guide.

    vocab_size: ids from there on are padding of the logits and are never drawn; all states of a
    batch have the same. end_ids: tokens that end the sequence unless `ignore_eos` is set.
    generated_ids: the tokens that were generated before; the state is the one after an `append`
    of each, at a small part of the cost.
    Raises BadParameter for a token that does not exist, except for end tokens of the model, and
    for generated tokens after the end of an answer.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        end_ids: frozenset[int],
        vocab_size: int,
        generated_ids: Sequence[int] = (),
    ) -> None:
        self.params = params
        self.vocab_size = vocab_size
        self._generated = len(generated_ids)
        self._numbers = RandomNumbers(params.seed)
        known("stop_token_ids", params.stop_token_ids - end_ids, vocab_size)
        self._ending = params.stop_token_ids | (frozenset() if params.ignore_eos else end_ids)
        ending_ids = as_array(token for token in self._ending if 0 <= token < vocab_size)
        self._check(generated_ids)
        self.edits = edits_of(params, prompt_ids, generated_ids, ending_ids, vocab_size)
        # With only one possible token no distribution is needed.
        self.is_greedy = params.temperature == 0 or params.top_k == 1 or params.top_p <= 0
        self.is_truncated = 0 < params.top_k < vocab_size or params.top_p < 1 or params.min_p > 0

    @property
    def generated(self) -> int:
        return self._generated

    @property
    def is_edited(self) -> bool:
        """Whether the next token's logits are changed before a token is drawn from them."""
        return bool(self.edits)

    @property
    def is_plain(self) -> bool:
        """Whether the next token is simply the most likely one, and nothing else is reported."""
        return self.is_greedy and not self.edits and self.params.log_probs is None

    def append(self, token_id: int) -> None:
        self._generated += 1
        for edit in self.edits:
            edit.append(token_id)
        if self._generated == self.params.min_tokens:
            self.edits = [edit for edit in self.edits if not isinstance(edit, MinTokens)]

    def uniform(self) -> float:
        """The n-th generated token is always drawn with the n-th number."""
        return self._numbers.at(self._generated)

    def ends_with(self, token_id: int) -> bool:
        """Whether this generated token is the last one.

        min_tokens does not matter here: an earlier end token was the only one that a guide allowed.
        """
        return token_id in self._ending

    def _check(self, generated_ids: Sequence[int]) -> None:
        """Refuses what this sequence cannot have generated."""
        known(RESUME_PARAM, generated_ids, self.vocab_size)
        before_last = generated_ids[:-1]
        for token_id in self._ending.intersection(before_last):
            position = before_last.index(token_id)
            raise BadParameter(
                RESUME_PARAM,
                f"the generated token {token_id} at position {position} ends the answer, but "
                f"resume_from is {len(generated_ids)}",
            )
