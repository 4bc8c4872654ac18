"""Arrays of token ids, and the check that a request names only tokens that exist."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from port import BadParameter

TokenIds = npt.NDArray[np.int64]


def as_array(token_ids: Iterable[int]) -> TokenIds:
    return np.fromiter(token_ids, np.int64)


def known(param: str, token_ids: Iterable[int], vocab_size: int) -> TokenIds:
    """The ids as an array. Raises BadParameter if one of them is outside the vocabulary."""
    ids = as_array(token_ids)
    unknown = ids[(ids < 0) | (ids >= vocab_size)]
    if len(unknown):
        raise BadParameter(
            param,
            f"{param} names token {unknown[0]}, which is outside the vocabulary of "
            f"{vocab_size} tokens",
        )
    return ids
