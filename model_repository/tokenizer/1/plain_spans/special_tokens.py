"""The added tokens that the tokenizers library counts as special, and so can ignore in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from tokenizers import AddedToken, Tokenizer

from plain_spans.aliases import PRIVATE_USE, like, token_id
from plain_spans.word_trie import one_of


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
