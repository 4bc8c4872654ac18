"""What one sequence's sampling remembers from admission to its end, preempted or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from bad_words import BadWords
from port import BadParameter, SamplingParams
from seen_tokens import SeenTokens
from uniforms import Uniforms

TokenIds = npt.NDArray[np.int64]


class SamplerState:
    """`append` after every generated token, sampled or forced by a guide.

    vocab_size: ids from there on are padding of the logits and never drawn; every state of a
    batch has the same. end_ids end the sequence unless the parameters say ignore_eos.
    Raises BadParameter for a token that does not exist; those that the model itself names may.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        end_ids: frozenset[int],
        vocab_size: int,
    ) -> None:
        self.params = params
        self.vocab_size = vocab_size
        self._generated = 0
        self._uniforms = Uniforms(params.seed)
        self._ending = params.stop_token_ids | (frozenset() if params.ignore_eos else end_ids)
        self._ending_ids = _ids(token for token in self._ending if 0 <= token < vocab_size)
        self._known("stop_token_ids", params.stop_token_ids - end_ids)
        self.bias_ids = self._known("logit_bias", (token for token, _ in params.logit_bias))
        self.bias = np.array([bias for _, bias in params.logit_bias], np.float32)
        allowed = params.allowed_token_ids
        self.allowed_ids = None if allowed is None else self._known("allowed_token_ids", allowed)
        self._bad_words = self._make_bad_words(prompt_ids)
        self.seen = self._make_seen(prompt_ids)
        self._is_always_edited = bool(
            params.logit_bias or allowed is not None or self._bad_words or self.seen
        )
        # No distribution is needed where one token alone can be drawn.
        self.is_greedy = params.temperature == 0 or params.top_k == 1 or params.top_p <= 0
        self.is_truncated = 0 < params.top_k < vocab_size or params.top_p < 1 or params.min_p > 0

    @property
    def generated(self) -> int:
        return self._generated

    @property
    def is_edited(self) -> bool:
        """Whether the next token's logits are changed before anything is drawn from them."""
        return self._is_always_edited or self._generated < self.params.min_tokens

    @property
    def is_plain(self) -> bool:
        """Whether the most likely token is the whole answer."""
        return self.is_greedy and not self.is_edited and self.params.log_probs is None

    def append(self, token_id: int) -> None:
        self._generated += 1
        if self._bad_words:
            self._bad_words.append(token_id)
        if self.seen:
            self.seen.append(token_id)

    def uniform(self) -> float:
        """The n-th generated token is always drawn with the n-th number."""
        return self._uniforms.at(self._generated)

    def bad_word_ids(self) -> TokenIds:
        """The tokens that would complete a bad word now."""
        if not self._bad_words:
            return _ids(())
        return self._bad_words.banned()

    def too_early_ids(self) -> TokenIds:
        """The tokens that would end the sequence before min_tokens."""
        return self._ending_ids if self._generated < self.params.min_tokens else _ids(())

    def ends_with(self, token_id: int) -> bool:
        """Whether this generated token is the last one.

        min_tokens does not matter here: an end that comes before it was all a guide allowed.
        """
        return token_id in self._ending

    def _known(self, param: str, token_ids: Iterable[int]) -> TokenIds:
        ids = _ids(token_ids)
        unknown = ids[(ids < 0) | (ids >= self.vocab_size)]
        if len(unknown):
            raise BadParameter(
                param,
                f"{param} names token {unknown[0]}, which is outside the vocabulary of "
                f"{self.vocab_size} tokens",
            )
        return ids

    def _make_bad_words(self, prompt_ids: Sequence[int]) -> BadWords | None:
        words = [word for word in self.params.bad_words if word]
        return BadWords(words, prompt_ids, self.vocab_size) if words else None

    def _make_seen(self, prompt_ids: Sequence[int]) -> SeenTokens | None:
        """Only repetition_penalty looks at the prompt."""
        params = self.params
        if params.repetition_penalty != 1:
            return SeenTokens(token for token in prompt_ids if 0 <= token < self.vocab_size)
        if params.presence_penalty != 0 or params.frequency_penalty != 0:
            return SeenTokens(())
        return None


def _ids(token_ids: Iterable[int]) -> TokenIds:
    return np.fromiter(token_ids, np.int64)
