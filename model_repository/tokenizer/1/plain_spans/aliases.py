"""Other names for control tokens, which no caller can guess: added tokens that stand for them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer

NAME_LENGTH = 8  # characters, random
PRIVATE_USE = range(0x100000, 0x10FFFE)  # of Unicode


class TokenAliases:
    """`names`: the alias of each control token. `original_ids`: the token id by its alias's id."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._prefix = "".join(chr(secrets.choice(PRIVATE_USE)) for _ in range(NAME_LENGTH))
        self.names: dict[str, str] = {}
        self.original_ids: dict[int, int] = {}

    def add(self, tokens: Iterable[AddedToken]) -> None:
        """Adds aliases for the tokens that have none yet."""
        new = sorted(
            (token for token in tokens if token.content not in self.names),
            key=lambda token: token.content,
        )
        if not new:
            return
        if not self.names:
            self._fill_gaps()
        for token in new:
            self.names[token.content] = f"{self._prefix}{chr(PRIVATE_USE[len(self.names)])}"
        self._tokenizer.add_tokens([like(token, self.names[token.content]) for token in new])
        for token in new:
            alias_id = token_id(self._tokenizer, self.names[token.content])
            self.original_ids[alias_id] = token_id(self._tokenizer, token.content)

    def _fill_gaps(self) -> None:
        """Adds fillers up to the highest id, because a vocabulary may have gaps.

        So an alias never gets the id of a gap.
        """
        highest = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        filler = f"{self._prefix}{chr(PRIVATE_USE[-1])}"
        self._tokenizer.add_tokens([AddedToken(filler, special=False, normalized=False)])
        missing = highest - token_id(self._tokenizer, filler)
        self._tokenizer.add_tokens(
            [
                AddedToken(f"{filler}{number}", special=False, normalized=False)
                for number in range(missing)
            ]
        )


def like(token: AddedToken, content: str, *, special: bool = False) -> AddedToken:
    """A token of another content that the library finds in texts by the same rules."""
    return AddedToken(
        content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=special,
    )


def token_id(tokenizer: Tokenizer, content: str) -> int:
    """The id of a token in the vocabulary. Raises KeyError for any other content."""
    found = tokenizer.token_to_id(content)
    if found is None:
        raise KeyError(content)
    return int(found)
