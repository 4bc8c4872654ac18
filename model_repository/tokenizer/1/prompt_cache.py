"""The tokens of the parts of long prompts, so that the next turn of a conversation, or a prompt
without its oldest turns, tokenizes only what is new.

A text is cut where special tokens begin that the tokenizer isolates: it normalizes and tokenizes
what stands between them by itself, so a part has the same tokens in every text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from plain_spans import one_of, overlaps

Ids = npt.NDArray[np.int32]
Spans = Sequence[int] | None
Key = tuple[str, str, tuple[int, ...] | None]  # of a part: its salt, text and plain spans
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


class Part(NamedTuple):
    """A part of a text, from `start` on. tokens: the ids of the isolated tokens in it, which its
    plain spans do not touch.
    """

    start: int
    tokens: list[int]
    key: Key


class PromptCache:
    """Keeps the tokens of parts of recent prompts, and finds a part by its own salt only."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokens = isolated_tokens(tokenizer)
        self._pattern = re.compile(one_of(self._tokens))
        self._ids = as_ids(list(self._tokens.values()))
        self._kept: OrderedDict[Key, Ids] = OrderedDict()  # the part used last at the end
        self.bytes = 0

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
        found, count = list[Ids](), 0
        known = [(part, self._kept.get(part.key)) for part in self._parts(text, spans, salt)]
        for _, run in groupby(known, lambda one: (one[1] is None, one[0].start // AT_ONCE)):
            parts, kept = zip(*run, strict=True)
            new = self._encoded(parts, encode) if kept[0] is None else kept
            if len(new) == len(parts):
                self._keep(parts, new)
            found += new
            count += sum(map(len, new))
            check(count)
        return np.concatenate(found)

    def _parts(self, text: str, spans: Spans, salt: str) -> Iterator[Part]:
        starts, ends = (spans or ())[::2], (spans or ())[1::2]
        start, tokens, inside = 0, list[int](), None
        for match in (*self._pattern.finditer(text), None):
            if match is not None and spans and overlaps(*match.span(), starts, ends):
                continue
            place = len(text) if match is None else match.start()
            if match is None or place - start >= PART_CHARACTERS:
                if spans is not None:
                    first, last = bisect_left(starts, start), bisect_left(starts, place)
                    inside = tuple(at - start for at in spans[2 * first : 2 * last])
                yield Part(start, tokens, (salt, text[start:place], inside))
                start, tokens = place, []
            if match is not None:
                tokens.append(self._tokens[match.group()])

    def _encoded(
        self, parts: Sequence[Part], encode: Callable[[str, Spans], list[int]]
    ) -> Sequence[Ids]:
        """The ids of each part; of all together, if they cannot be told apart."""
        text, spans = "".join(part.key[1] for part in parts), None
        if parts[0].key[2] is not None:
            first = parts[0].start
            spans = [at + one.start - first for one in parts for at in one.key[2] or ()]
        ids = as_ids(encode(text, spans))
        places = np.flatnonzero(np.isin(ids, self._ids))
        if ids[places].tolist() != [token for part in parts for token in part.tokens]:
            return [ids]  # the model made one of plain letters
        return np.split(
            ids, places[np.cumsum([len(part.tokens) for part in parts[:-1]], dtype=int)]
        )

    def _keep(self, parts: Sequence[Part], found: Sequence[Ids]) -> None:
        """Keeps these, or makes them the newest ones."""
        for (_, _, key), ids in zip(parts, found, strict=True):
            if key in self._kept:
                self._kept.move_to_end(key)
            else:
                self._kept[key] = ids.copy()
                self.bytes += _size(key, ids)
        while self.bytes > MOST_BYTES or len(self._kept) > MOST_PARTS:
            self.bytes -= _size(*self._kept.popitem(last=False))


def _size(key: Key, ids: Ids) -> int:
    _, text, spans = key
    return BYTES_A_PART * (1 + len(spans or ())) + BYTES_A_CHARACTER * len(text) + ids.nbytes
