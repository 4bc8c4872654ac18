"""The tokens of long prompts, so that the next turn of a conversation tokenizes only what is new.

A text is cut where a special token begins: what stands before is tokenized the same whatever
follows, and what follows as it would be behind the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from plain_spans import one_of

FROM_CHARACTERS = 8_192  # shorter texts take no longer to tokenize than to look for
MOST_PROMPTS = 32
MOST_BYTES = 32_000_000
BYTES_A_CHARACTER, BYTES_A_SPECIAL = 4, 96  # at most, of Python's strings and numbers


@dataclass(frozen=True, slots=True)
class Prompt:
    """ids [n], int32. starts, ends: of each special token in the text, in characters. at: its index
    in the ids.
    """

    salt: str
    text: str
    ids: npt.NDArray[np.int32]
    starts: list[int]
    ends: list[int]
    at: npt.NDArray[np.int64]

    @property
    def size_bytes(self) -> int:
        of_text = BYTES_A_CHARACTER * len(self.text) + BYTES_A_SPECIAL * len(self.ends)
        return of_text + self.ids.nbytes

    def shared(self, text: str) -> int:
        """How many of the special tokens `text` has, too, with all that is before them."""
        low, high = 0, len(self.ends)
        while low < high:
            middle = (low + high + 1) // 2
            end = self.ends[middle - 1]
            start = self.ends[low - 1] if low else 0
            if text.startswith(self.text[start:end], start):
                low = middle
            else:
                high = middle - 1
        return low


class PromptCache:
    """Keeps the tokens of the newest prompts, and finds a prompt by its own salt only."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._prompts: list[Prompt] = []  # the newest last
        added = tokenizer.get_added_tokens_decoder()
        contents = [token.content for token in added.values()]
        # Tokens that take the white space before them, or can be a part of another, are no cuts.
        self._ids = {
            token.content: id_
            for id_, token in added.items()
            if token.special
            and not (token.lstrip or token.single_word or token.normalized)
            and sum(token.content in content for content in contents) == 1
        }
        self._special = re.compile(one_of(self._ids))
        self._special_ids = np.array(list(self._ids.values()), dtype=np.int32)

    def encode(self, text: str, salt: str, encode: Callable[[str], list[int]]) -> list[int]:
        """What `encode` makes of the text; it adds no tokens before or behind those of a text."""
        if len(text) < FROM_CHARACTERS:
            return encode(text)
        found, count = self._longest(text, salt)
        if found is None:
            ids = encode(text)
        else:
            last = count - 1
            before = found.ids[: found.at[last]].tolist()
            ids = before + encode(text[found.starts[last] :])
        self._keep(text, salt, ids)
        return ids

    def _longest(self, text: str, salt: str) -> tuple[Prompt | None, int]:
        """The prompt that shares most with the text, and how many special tokens they share."""
        best, count, end = None, 0, 0
        for prompt in reversed(self._prompts):
            shared = prompt.shared(text) if prompt.salt == salt else 0
            if shared and prompt.ends[shared - 1] > end:
                best, count, end = prompt, shared, prompt.ends[shared - 1]
        return best, count

    def _keep(self, text: str, salt: str, ids: list[int]) -> None:
        matches = list(self._special.finditer(text))
        expected = [self._ids[match.group()] for match in matches]
        numbers = np.array(ids, dtype=np.int32)
        at = np.flatnonzero(np.isin(numbers, self._special_ids))
        if not expected or numbers[at].tolist() != expected:  # the model made one of plain letters
            return
        starts, ends = [one.start() for one in matches], [one.end() for one in matches]
        kept = Prompt(salt=salt, text=text, ids=numbers, starts=starts, ends=ends, at=at)
        self._prompts = [one for one in self._prompts if not self._is_begin(one, kept)]
        self._prompts.append(kept)
        while len(self._prompts) > MOST_PROMPTS or self.size_bytes > MOST_BYTES:
            self._prompts.pop(0)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self._prompts)

    @staticmethod
    def _is_begin(old: Prompt, new: Prompt) -> bool:
        """Whether the new prompt serves wherever the old one did."""
        return old.salt == new.salt and old.shared(new.text) == len(old.ends)
