"""The tokens of the parts of long prompts, so that the next turn of a conversation, or a prompt
without its oldest turns, tokenizes only what is new.

A text is cut where special tokens begin that the tokenizer isolates: it normalizes and tokenizes
what stands between them by itself, so a part has the same tokens in every text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import chain, groupby

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from plain_spans import one_of, overlaps

Ids = npt.NDArray[np.int32]
Spans = Sequence[int] | None
Key = tuple[str, tuple[int, ...] | None]  # a part's text, and its plain spans
FROM_CHARACTERS = 8_192  # shorter texts take no longer to tokenize than to look for
PART_CHARACTERS = 64  # at least, so that they are not too many
AT_ONCE = 65_536  # characters that are tokenized between two checks
MOST_PARTS = 32_768
MOST_BYTES = 32_000_000
BYTES_A_CHARACTER, BYTES_A_PART = 4, 400  # at most, of Python's and numpy's objects


def as_ids(ids: Sequence[int]) -> Ids:
    return np.array(ids, dtype=np.int32)


def isolated_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """The special tokens, with their ids, that the library finds wherever their text stands, and
    before which a text has the tokens that it has at its end.

    They take no white space before them and have no regard to letters around them, no other token
    can share letters with them, and none takes their first letter for white space or a word's.
    """
    added = tokenizer.get_added_tokens_decoder()
    contents = [token.content for token in added.values()]
    return {
        token.content: id_
        for id_, token in added.items()
        if token.special
        and not (token.lstrip or token.single_word or token.normalized)
        and re.match(r"[^\w\s]", token.content)
        and sum(token.content in content for content in contents) == 1
        and not any(_share_letters(token.content, content) for content in contents)
    }


def _share_letters(one: str, other: str) -> bool:
    """Whether the end of one can be the beginning of the other."""
    sizes = range(1, min(len(one), len(other)))
    return any(one[:size] == other[-size:] or other[:size] == one[-size:] for size in sizes)


class Kept:
    """The parts of one salt, those used last at the end."""

    def __init__(self) -> None:
        self.bytes = 0
        self.parts: OrderedDict[Key, Ids] = OrderedDict()

    def add(self, key: Key, ids: Ids) -> None:
        if key not in self.parts:
            self.parts[key] = ids.copy()
            self.bytes += _size(key, ids)

    def drop_oldest(self) -> None:
        self.bytes -= _size(*self.parts.popitem(last=False))


def _size(key: Key, ids: Ids) -> int:
    text, spans = key
    return BYTES_A_PART * (1 + len(spans or ())) + BYTES_A_CHARACTER * len(text) + ids.nbytes


class CutText:
    """A text in parts, each with the isolated tokens outside of plain spans that are in it."""

    def __init__(self, text: str, spans: Spans, pattern: re.Pattern[str]) -> None:
        starts, ends = (spans or ())[::2], (spans or ())[1::2]
        found = [
            match
            for match in pattern.finditer(text)
            if not (spans and overlaps(match.start(), match.end(), starts, ends))
        ]
        self._text = text
        self._spans = None if spans is None else list(zip(starts, ends, strict=True))
        self._tokens = [match.group() for match in found]
        self._firsts = [0]  # of each part, the number of its first token
        self._places = [0]  # where each part begins, and the end of the text
        for number, match in enumerate(found):
            if (place := match.start()) - self._places[-1] >= PART_CHARACTERS:
                self._firsts.append(number)
                self._places.append(place)
        self._places.append(len(text))

    def keys(self) -> list[Key]:
        pieces = map(self.piece, range(len(self._firsts)))
        return [(text, None if spans is None else tuple(spans)) for text, spans in pieces]

    def place(self, part: int) -> int:
        return self._places[part]

    def piece(self, part: int, end: int | None = None) -> tuple[str, Spans]:
        """The text of the parts up to `end`, or of one, and the plain spans in it."""
        start, stop = self._places[part], self._places[part + 1 if end is None else end]
        if self._spans is None:
            return self._text[start:stop], None
        first, last = bisect_left(self._spans, (start,)), bisect_left(self._spans, (stop,))
        inside = chain.from_iterable(self._spans[first:last])
        return self._text[start:stop], [place - start for place in inside]

    def tokens(self, part: int, end: int) -> list[str]:
        """Those of the parts up to `end`."""
        firsts = [*self._firsts, len(self._tokens)]
        return self._tokens[firsts[part] : firsts[end]]

    def ids_of_parts(self, part: int, end: int, ids: Ids, at: Ids) -> list[Ids]:
        """ids: of the parts up to `end`; at: the index of each of their tokens in them."""
        numbers = [number - self._firsts[part] for number in self._firsts[part + 1 : end]]
        return np.split(ids, at[numbers])


class PromptCache:
    """Keeps the tokens of parts of recent prompts, and finds a part by its own salt only."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokens = isolated_tokens(tokenizer)
        self._pattern = re.compile(one_of(self._tokens))
        self._ids = as_ids(list(self._tokens.values()))
        self._kept: OrderedDict[str, Kept] = OrderedDict()  # by salt, the one used last at the end
        self.bytes = self.parts = 0

    def encode(
        self,
        text: str,
        spans: Spans,
        salt: str,
        encode: Callable[[str, Spans], list[int]],
        check: Callable[[int], None],
    ) -> Ids:
        """What `encode` makes of the text and its plain spans; it adds no tokens to a text's own.

        check: called with the number of tokens so far; the work ends with what it raises.
        """
        if len(text) < FROM_CHARACTERS or not self._tokens:
            return as_ids(encode(text, spans))
        cut, found, count = CutText(text, spans, self._pattern), list[Ids](), 0
        keys = cut.keys()
        known = self._known(keys, salt)
        runs = groupby(range(len(keys)), lambda at: (known[at] is None, cut.place(at) // AT_ONCE))
        for (is_new, _), run in runs:
            first, *others = run
            end = first + len(others) + 1
            if is_new:
                new = self._encoded(cut, first, end, encode)
                self._keep(salt, keys[first:end], new)
            else:
                new = [ids for ids in known[first:end] if ids is not None]
            found += new
            count += sum(map(len, new))
            check(count)
        return np.concatenate(found)

    def _known(self, keys: list[Key], salt: str) -> list[Ids | None]:
        if (kept := self._kept.get(salt)) is None:
            return [None] * len(keys)
        self._kept.move_to_end(salt)
        known = [kept.parts.get(key) for key in keys]
        for key, ids in zip(keys, known, strict=True):
            if ids is not None:
                kept.parts.move_to_end(key)
        return known

    def _encoded(
        self, cut: CutText, first: int, end: int, encode: Callable[[str, Spans], list[int]]
    ) -> list[Ids]:
        """The ids of each of the parts; of all together, if they cannot be told apart."""
        ids = as_ids(encode(*cut.piece(first, end)))
        at = np.flatnonzero(np.isin(ids, self._ids))
        if ids[at].tolist() != [self._tokens[token] for token in cut.tokens(first, end)]:
            return [ids]  # the model made one of plain letters
        return cut.ids_of_parts(first, end, ids, at)

    def _keep(self, salt: str, keys: list[Key], found: list[Ids]) -> None:
        if len(found) != len(keys):
            return
        kept = self._kept.setdefault(salt, Kept())
        self.bytes -= kept.bytes
        self.parts -= len(kept.parts)
        for key, ids in zip(keys, found, strict=True):
            kept.add(key, ids)
        self.bytes += kept.bytes
        self.parts += len(kept.parts)
        while self.bytes > MOST_BYTES or self.parts > MOST_PARTS:
            self._drop_one(salt)

    def _drop_one(self, salt: str) -> None:
        """A salt that has more than its share loses its own parts, any other those of the salt that
        was not used for longest.
        """
        kept, salts = self._kept[salt], len(self._kept)
        if kept.bytes * salts <= MOST_BYTES and len(kept.parts) * salts <= MOST_PARTS:
            salt, kept = next(iter(self._kept.items()))
        self.bytes -= kept.bytes
        kept.drop_oldest()
        self.bytes += kept.bytes
        self.parts -= 1
        if not kept.parts:
            del self._kept[salt]
