"""`plain_spans`: prompts in which callers' text spells control tokens that must stay plain text.

The tokenizers library can ignore special tokens only in a whole text. So every control token in a
span becomes special, and those outside of spans get other names (TokenAliases).
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Tokenizer

from refusal import INVALID_PARAMETER, Refusal

Node = dict[str, Any]
END = ""


def one_of(words: Iterable[str]) -> str:
    """A pattern for the longest word at a position; without any words it matches nothing."""
    root: Node = {}
    for word in words:
        node = root
        for character in word:
            node = node.setdefault(character, {})
        node[END] = {}
    return _written(root) if root else r"(?!)"


def _written(node: Node) -> str:
    """The pattern of a node. Runs without a fork are one piece, so groups nest only at forks."""
    branches = [_run(character, after) for character, after in node.items() if character != END]
    if not branches:
        return ""
    if END not in node:
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return f"(?:{'|'.join(branches)})?"


def _run(character: str, after: Node) -> str:
    run = [character]
    while len(after) == 1 and END not in after:
        ((character, after),) = after.items()
        run.append(character)
    return re.escape("".join(run)) + _written(after)


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


class SpecialTokens:
    """`tokens`: the special tokens by their content, with those that `include` made special."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def tokens(self) -> dict[str, AddedToken]:
        return {text: one for text, one in self._added.items() if one.special}

    @cached_property
    def contents(self) -> dict[int, str]:
        """The content of each special token by its id, without the token for unknown characters."""
        unknown = self._tokenizer.encode(chr(PRIVATE_USE[0]), add_special_tokens=False).ids
        contents = {token_id(self._tokenizer, text): text for text in self.tokens}
        return {token: text for token, text in contents.items() if token not in unknown}

    def include(self, texts: Iterable[str]) -> None:
        """Makes the added tokens special that these texts spell."""
        found = {content for text in set(texts) for content in self._any_added.findall(text)}
        if not (new := found - self.tokens.keys()):
            return
        tokens = [like(self._added[content], content, special=True) for content in sorted(new)]
        self._tokenizer.add_special_tokens(tokens)
        self.tokens.update({one.content: one for one in tokens})
        for name in ("contents", "_any_special"):
            self.__dict__.pop(name, None)

    def find(self, text: str) -> Iterator[re.Match[str]]:
        """The special tokens in a text, as the library finds them."""
        for match in self._any_special.finditer(text):
            if not self.tokens[match.group()].single_word or _is_word(match):
                yield match

    @cached_property
    def _added(self) -> dict[str, AddedToken]:
        """All added tokens, special or not, before `include` and the aliases add others."""
        return {one.content: one for one in self._tokenizer.get_added_tokens_decoder().values()}

    @cached_property
    def _any_added(self) -> re.Pattern[str]:
        return re.compile(one_of(self._added))

    @cached_property
    def _any_special(self) -> re.Pattern[str]:
        return re.compile(one_of(self.tokens))


def _is_word(match: re.Match[str]) -> bool:
    """Whether no letters touch the match, which the library requires of `single_word` tokens."""
    text, start, end = match.string, match.start(), match.end()
    around = text[max(start - 1, 0) : start] + text[end : end + 1]
    return re.search(r"\w", around) is None


UNPRINTABLE = (*range(0x21), *range(0x7F, 0xA1), 0xAD)  # bytes that are not printable Latin-1


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
        starts, ends = checked(spans, len(text))
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
            if not overlaps(match.start(), match.end(), starts, ends)
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


def checked(spans: Sequence[int], length: int) -> tuple[Sequence[int], Sequence[int]]:
    starts, ends = spans[::2], spans[1::2]
    is_ordered = all(a <= b for a, b in zip([0, *spans], [*spans, length], strict=True))
    if len(starts) != len(ends) or not is_ordered:
        raise Refusal(
            INVALID_PARAMETER,
            PARAM,
            f"must be starts and ends, in order, in a text of {length} characters",
        )
    return starts, ends


def overlaps(start: int, end: int, starts: Sequence[int], ends: Sequence[int]) -> bool:
    at = bisect_right(ends, start)
    return at < len(starts) and starts[at] < end
