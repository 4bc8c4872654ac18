"""Texts and token ids -> the sequences that the model reads. Refuses those that are too long."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

CHARACTERS_A_TOKEN = 4  # a guess of how much text to tokenize for a token
CUT_MARGIN_TOKENS = 64  # cutting a text changes only the few tokens around the cut


class Refusal(Exception):
    """The error for a request that the model cannot serve. row: of the text in the request."""

    def __init__(self, code: str, message: str, row: int) -> None:
        super().__init__(message)
        self.code, self.message, self.row = code, message, row

    def as_json(self, request_id: str) -> str:
        """The error message that the proxy turns into an API error."""
        return json.dumps(
            {
                "code": self.code,
                "param": f"prompt[{self.row}]",
                "message": self.message,
                "request_id": request_id,
            }
        )


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """types: of each token 0 for the first text, 1 for the second."""

    ids: tuple[int, ...]
    types: tuple[int, ...]


class Encoder:
    """Encodes with the model's own tokenizer.

    Args:
        left_out: a token that a static model has no vector for.
    """

    def __init__(
        self,
        tokenizer: Path,
        *,
        context_length: int,
        vocab_size: int,
        adds_special_tokens: bool,
        left_out: int | None,
    ) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._context_length = context_length
        self._vocab_size = vocab_size
        self._adds_special_tokens = adds_special_tokens
        self._left_out = left_out

    def of_text(self, text: str, pair: str | None, row: int, most: int | None) -> TokenSequence:
        """most: an operator's limit, in tokens. Raises Refusal."""
        for each in (text, pair or ""):
            self._check_start(each, row, most)
        found = self._tokenizer.encode(text, pair, add_special_tokens=self._adds_special_tokens)
        sequence = TokenSequence(tuple(found.ids), tuple(found.type_ids))
        return self._checked(sequence, row, most, "text" if pair is None else "pair of texts")

    def of_ids(self, given: list[int], row: int, most: int | None) -> TokenSequence:
        """given: ends with -1, once or more, if other rows are longer. Raises Refusal."""
        while given and given[-1] == -1:
            given.pop()
        for token in given:
            if not 0 <= token < self._vocab_size:
                raise Refusal(
                    "invalid_parameter",
                    f"token id {token} is outside the vocabulary of {self._vocab_size} tokens",
                    row,
                )
        return self._checked(TokenSequence(tuple(given), (0,) * len(given)), row, most)

    def known(self, sequence: TokenSequence) -> TokenSequence:
        """Without the tokens that the model has no vector for."""
        ids = tuple(one for one in sequence.ids if one != self._left_out)
        return TokenSequence(ids, sequence.types[: len(ids)])

    def _checked(
        self, sequence: TokenSequence, row: int, most: int | None, what: str = "text"
    ) -> TokenSequence:
        tokens = len(sequence.ids)
        if not tokens:
            raise Refusal("invalid_parameter", "The text has no tokens.", row)
        self._check(tokens, f"the {what} has {tokens}", row, most)
        return sequence

    def _check_start(self, text: str, row: int, most: int | None) -> None:
        """Refuses a text by its first part, if that alone is too long: to tokenize ten megabytes
        would block others for half a minute.
        """
        size = CHARACTERS_A_TOKEN * self._context_length
        while size < len(text):
            start = self._tokenizer.encode(text[:size], add_special_tokens=False)
            self._check(len(start) - CUT_MARGIN_TOKENS, "a text has more", row, most)
            size *= 2

    def _check(self, tokens: int, shown: str, row: int, most: int | None) -> None:
        if tokens > self._context_length:
            longest = f"This model's maximum context length is {self._context_length} tokens"
        elif most is not None and tokens > most:
            longest = f"This server accepts at most {most} tokens for this model"
        else:
            return
        message = f"{longest}, and {shown}. Shorten it, or split it."
        raise Refusal("context_length_exceeded", message, row)
