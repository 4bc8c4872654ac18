"""`bad_words`: words that must not be generated -> TensorRT-LLM's word list of token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from refusal import INVALID_PARAMETER, Refusal

Encode = Callable[[str], list[int]]
PARAM = "bad_words"
# The longer the words, the longer it takes to tokenize them, and to compare them at every step.
CHARACTERS_AT_MOST, TOKENS_AT_MOST = 65_536, 16_384


def bad_words_list(words: Iterable[str], encode: Encode) -> npt.NDArray[np.int32]:
    """[1, 2, n]: row 0 is all ids joined, row 1 says where each word ends, padded with -1.

    Each word counts both as it is and with a space before it, if that makes other tokens.

    Raises:
        Refusal: all words together are too long.
    """
    words = list(words)
    _check("characters", sum(map(len, words)), CHARACTERS_AT_MOST)
    variants = {
        tuple(encode(variant)): None for word in words for variant in (word, f" {word.lstrip()}")
    }
    ids = [token for variant in variants for token in variant]
    _check("tokens, including those with a space before them", len(ids), TOKENS_AT_MOST)
    ends = np.cumsum([len(variant) for variant in variants if variant], dtype=np.int32)
    rows = np.full((1, 2, len(ids)), -1, dtype=np.int32)
    rows[0, 0] = ids
    rows[0, 1, : len(ends)] = ends
    return rows


def _check(unit: str, count: int, most: int) -> None:
    if count > most:
        raise Refusal(
            INVALID_PARAMETER,
            PARAM,
            f"the words have {count} {unit}: at most {most} are allowed for all words together",
        )
