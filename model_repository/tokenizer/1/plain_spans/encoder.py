"""Texts that spell the tokenizer's added tokens where they are plain text: `plain_spans`.

The tokenizers library can leave special tokens alone in a whole text. So those that count are given
other names for the time, and those in spans become special, if they are not.
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from tokenizers import AddedToken, Tokenizer

from admission import Refusal
from plain_spans.word_trie import one_of

PARAM = "plain_spans"
NAME_LENGTH = 8  # characters, which no caller can guess
PRIVATE_USE = range(0x100000, 0x10FFFE)
UNPRINTABLE = (*range(0x21), *range(0x7F, 0xA1), 0xAD)  # bytes that are no printable Latin-1


class PlainSpans:
    """Encodes with one tokenizer, which finds the same tokens as ever in all other texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._name = "".join(chr(secrets.choice(PRIVATE_USE)) for _ in range(NAME_LENGTH))
        self._aliases: dict[str, str] = {}
        self._ids: dict[int, int] = {}  # of aliases -> of their tokens

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
            encode: by the tokenizer.
            frame: how many tokens `encode` adds before and behind those of the text.

        Raises:
            Refusal: the spans are wrong, or one's text has no other tokens.
        """
        starts, ends = _checked(spans, len(text))
        self._make_special(text[start:end] for start, end in zip(starts, ends, strict=True))
        aliased = self._aliased(text, starts, ends)
        self._tokenizer.encode_special_tokens = True
        try:
            ids = encode(aliased)
        finally:
            self._tokenizer.encode_special_tokens = False
        return [*self._own(ids, range(frame[0], len(ids) - frame[1]))]

    @cached_property
    def frame(self) -> tuple[int, int]:
        """How many tokens the tokenizer adds before a text, and behind it."""
        inner = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a").ids
        before = next(at for at in range(len(whole)) if whole[at : at + len(inner)] == inner)
        return before, len(whole) - before - len(inner)

    def _own(self, ids: list[int], of_text: range) -> Iterator[int]:
        """The tokenizer's ids. A model may make a special token of plain letters."""
        for at, token in enumerate(ids):
            if token in self._ids:
                yield self._ids[token]
            elif at in of_text and token in self._special_ids:
                yield from self._spelled(self._special_ids[token])
            else:
                yield token

    @cached_property
    def _added(self) -> dict[str, AddedToken]:
        """As the tokenizer came."""
        return {one.content: one for one in self._tokenizer.get_added_tokens_decoder().values()}

    @cached_property
    def _any(self) -> re.Pattern[str]:
        return re.compile(one_of(self._added))

    @cached_property
    def _special(self) -> dict[str, AddedToken]:
        return {text: one for text, one in self._added.items() if one.special}

    @cached_property
    def _special_ids(self) -> dict[int, str]:
        """Less that of unknown characters, which any text may have."""
        unknown = self._tokenizer.encode(self._name[0], add_special_tokens=False).ids
        ids = {self._id(text): text for text in self._special}
        return {token: text for token, text in ids.items() if token not in unknown}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(one_of(self._special))

    def _make_special(self, texts: Iterable[str]) -> None:
        """Those that were not: the library tells special tokens from others."""
        found = {token for text in set(texts) for token in self._any.findall(text)}
        if not (new := found - self._special.keys()):
            return
        tokens = [_like(self._added[text], text, special=True) for text in sorted(new)]
        self._tokenizer.add_special_tokens(tokens)
        self._special.update({one.content: one for one in tokens})
        for name in ("_special_ids", "_pattern"):
            self.__dict__.pop(name, None)

    def _aliased(self, text: str, starts: Sequence[int], ends: Sequence[int]) -> str:
        """With other names for all special tokens outside of spans."""
        kept = [
            token
            for token in self._pattern.finditer(text)
            if not _overlaps(token.start(), token.end(), starts, ends)
            and _stands_alone(self._special[token.group()], text, token.start(), token.end())
        ]
        self._name_all({token.group() for token in kept})
        pieces, at = list[str](), 0
        for token in kept:
            pieces += text[at : token.start()], self._aliases[token.group()]
            at = token.end()
        return "".join((*pieces, text[at:]))

    def _name_all(self, contents: set[str]) -> None:
        if not (new := sorted(contents - self._aliases.keys())):
            return
        if not self._aliases:
            self._leave_gaps()
        for content in new:
            self._aliases[content] = f"{self._name}{chr(PRIVATE_USE[len(self._aliases)])}"
        self._tokenizer.add_tokens(
            [_like(self._special[content], self._aliases[content]) for content in new]
        )
        for content in new:
            self._ids[self._id(self._aliases[content])] = self._id(content)

    def _id(self, name: str) -> int:
        """The id of a token in the vocabulary."""
        found = self._tokenizer.token_to_id(name)
        if found is None:
            raise KeyError(name)
        return found

    def _leave_gaps(self) -> None:
        """So that aliases get ids beyond all others: a vocabulary may have gaps."""
        highest = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        filler = f"{self._name}{chr(PRIVATE_USE[-1])}"
        self._tokenizer.add_tokens([AddedToken(filler, special=False, normalized=False)])
        missing = highest - self._id(filler)
        self._tokenizer.add_tokens(
            [
                AddedToken(f"{filler}{number}", special=False, normalized=False)
                for number in range(missing)
            ]
        )

    def _spelled(self, content: str) -> Iterator[int]:
        """By tokens of single characters, or of their bytes."""
        for character in content:
            for name in self._names(character):
                token = self._tokenizer.token_to_id(name)
                if token is None:
                    reason = f"the tokenizer can write {content!r} only as its control token"
                    raise Refusal("invalid_parameter", "prompt", reason)
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


def _checked(spans: Sequence[int], length: int) -> tuple[Sequence[int], Sequence[int]]:
    starts, ends = spans[::2], spans[1::2]
    is_ordered = all(a <= b for a, b in zip([0, *spans], [*spans, length], strict=True))
    if len(starts) != len(ends) or not is_ordered:
        raise Refusal(
            "invalid_parameter",
            PARAM,
            f"must be starts and ends, in order, in a text of {length} characters",
        )
    return starts, ends


def _overlaps(start: int, end: int, starts: Sequence[int], ends: Sequence[int]) -> bool:
    at = bisect_right(ends, start)
    return at < len(starts) and starts[at] < end


def _stands_alone(token: AddedToken, text: str, start: int, end: int) -> bool:
    """As the library has it for tokens that are found as whole words only."""
    if not token.single_word:
        return True
    around = text[max(start - 1, 0) : start] + text[end : end + 1]
    return re.search(r"\w", around) is None


def _like(token: AddedToken, content: str, *, special: bool = False) -> AddedToken:
    return AddedToken(
        content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=special,
    )


def _byte_level(byte: int) -> str:
    """A byte as GPT-2's vocabulary writes it."""
    return chr(0x100 + UNPRINTABLE.index(byte)) if byte in UNPRINTABLE else chr(byte)
