"""Words that must not be generated -> TensorRT-LLM's word list of token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from admission import Refusal

Encode = Callable[[str], list[int]]
PARAM = "bad_words"
# Tokenizing the words, and comparing them at every step, costs as much as they are long.
CHARACTERS_AT_MOST, TOKENS_AT_MOST = 65_536, 16_384


def word_list(words: Iterable[str], encode: Encode) -> npt.NDArray[np.int32]:
    """[1, 2, n]: row 0 is all ids joined, row 1 where each word ends, padded with -1.

    Each word counts both as it is and with a space before it, where that is another token.

    Raises:
        Refusal: the words are too long, all together.
    """
    words = list(words)
    _check("characters", sum(map(len, words)), CHARACTERS_AT_MOST)
    variants = {
        tuple(encode(variant)): None for word in words for variant in (word, f" {word.lstrip()}")
    }
    ids = [token for variant in variants for token in variant]
    _check("tokens, those with a space before them included", len(ids), TOKENS_AT_MOST)
    ends = np.cumsum([len(variant) for variant in variants if variant], dtype=np.int32)
    rows = np.full((1, 2, len(ids)), -1, dtype=np.int32)
    rows[0, 0] = ids
    rows[0, 1, : len(ends)] = ends
    return rows


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise Refusal(
            "invalid_parameter",
            PARAM,
            f"the words have {count} {what}: at most {most} are allowed for all words together",
        )
