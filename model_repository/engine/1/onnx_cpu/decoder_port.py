"""What the scheduler needs of a model. OnnxDecoder implements it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from onnx_cpu.kv_rows import KvRows

Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]


class Decoder(Protocol):
    """One model and the KV cache of its rows."""

    @property
    def kv(self) -> KvRows: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def most_tokens(self) -> int:
        """The tokens that one call of `prefill` can take."""

    def prefill(self, row: int, ids: list[int], past_tokens: int) -> Logits:
        """Feeds tokens to a row after its first `past_tokens`; returns logits [tokens, vocab]."""

    def decode(self, ids: Ids, past_tokens: Ids) -> Logits:
        """Feeds one token to each of the first n rows.

        ids, past_tokens: [n]. Returns logits [n, vocab], valid until the next call.
        """
