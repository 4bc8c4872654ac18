"""Encodes a text without the control tokens that its plain spans spell."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from tokenizers import Tokenizer

from plain_spans.aliases import TokenAliases
from plain_spans.special_tokens import SpecialTokens
from plain_spans.spelling import CharacterSpelling
from refusal import INVALID_PARAMETER, Refusal

PARAM = "plain_spans"


class PlainSpans:
    """Adds tokens to its tokenizer, which still encodes all other texts as before."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = SpecialTokens(tokenizer)
        self._aliases = TokenAliases(tokenizer)
        self._spelling = CharacterSpelling(tokenizer)

    def encode(
        self,
        text: str,
        spans: Sequence[int],
        encode: Callable[[str], list[int]],
        frame: tuple[int, int] = (0, 0),
    ) -> list[int]:
        """What `encode` makes of the text, without added tokens in the spans.

        Args:
            spans: starts and ends, in characters.
            encode: encodes a text with the tokenizer.
            frame: how many tokens `encode` adds before and after those of the text.

        Raises:
            Refusal: the spans are wrong, or the tokenizer cannot write a span as plain text.
        """
        starts, ends = _checked(spans, len(text))
        self._special.include(text[start:end] for start, end in zip(starts, ends, strict=True))
        aliased = self._aliased(text, starts, ends)
        self._tokenizer.encode_special_tokens = True
        try:
            ids = encode(aliased)
        finally:
            self._tokenizer.encode_special_tokens = False
        return [*self._original_ids(ids, range(frame[0], len(ids) - frame[1]))]

    @cached_property
    def frame(self) -> tuple[int, int]:
        """How many tokens the tokenizer adds before a text, and after it."""
        inner = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a").ids
        before = next(at for at in range(len(whole)) if whole[at : at + len(inner)] == inner)
        return before, len(whole) - before - len(inner)

    def _aliased(self, text: str, starts: Sequence[int], ends: Sequence[int]) -> str:
        """The text with an alias for each special token outside of the spans."""
        kept = [
            match
            for match in self._special.find(text)
            if not _overlaps(match.start(), match.end(), starts, ends)
        ]
        self._aliases.add(self._special.tokens[content] for content in {m.group() for m in kept})
        pieces, at = list[str](), 0
        for match in kept:
            pieces += text[at : match.start()], self._aliases.names[match.group()]
            at = match.end()
        return "".join((*pieces, text[at:]))

    def _original_ids(self, ids: list[int], of_text: range) -> Iterator[int]:
        """Replaces aliases. Also spells special tokens that the model made of plain letters."""
        for at, token in enumerate(ids):
            if token in self._aliases.original_ids:
                yield self._aliases.original_ids[token]
            elif at in of_text and token in self._special.contents:
                yield from self._spelling.ids(self._special.contents[token])
            else:
                yield token


def _checked(spans: Sequence[int], length: int) -> tuple[Sequence[int], Sequence[int]]:
    starts, ends = spans[::2], spans[1::2]
    is_ordered = all(a <= b for a, b in zip([0, *spans], [*spans, length], strict=True))
    if len(starts) != len(ends) or not is_ordered:
        raise Refusal(
            INVALID_PARAMETER,
            PARAM,
            f"must be starts and ends, in order, in a text of {length} characters",
        )
    return starts, ends


def _overlaps(start: int, end: int, starts: Sequence[int], ends: Sequence[int]) -> bool:
    at = bisect_right(ends, start)
    return at < len(starts) and starts[at] < end
