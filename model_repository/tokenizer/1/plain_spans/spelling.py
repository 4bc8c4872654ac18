"""Writes a control token's text with tokens of single characters, or of their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from tokenizers import Tokenizer

from refusal import INVALID_PARAMETER, Refusal

UNPRINTABLE = (*range(0x21), *range(0x7F, 0xA1), 0xAD)  # bytes that are no printable Latin-1


class CharacterSpelling:
    """For vocabularies of bytes (GPT-2's), and of characters with a fallback to bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def ids(self, content: str) -> Iterator[int]:
        """Raises Refusal if the vocabulary lacks a character and its bytes."""
        for character in content:
            for name in self._names(character):
                token = self._tokenizer.token_to_id(name)
                if token is None:
                    reason = f"the tokenizer can write {content!r} only as its control token"
                    raise Refusal(INVALID_PARAMETER, "prompt", reason)
                yield token

    def _names(self, character: str) -> Iterable[str]:
        """The names of the tokens that spell a character: its own, or those of its bytes."""
        if self._is_byte_level:
            return map(_byte_level, character.encode())
        if self._tokenizer.token_to_id(character) is None:
            return (f"<0x{byte:02X}>" for byte in character.encode())
        return (character,)

    @cached_property
    def _is_byte_level(self) -> bool:
        names = map(_byte_level, range(256))
        return all(self._tokenizer.token_to_id(name) is not None for name in names)


def _byte_level(byte: int) -> str:
    """The character that stands for a byte in GPT-2's vocabulary."""
    return chr(0x100 + UNPRINTABLE.index(byte)) if byte in UNPRINTABLE else chr(byte)
