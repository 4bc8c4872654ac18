"""A BERT-like graph in ONNX Runtime: sequences -> one vector each, or a classifier's scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

from encoder import TokenSequence

TOKENS_A_RUN = 8_192  # with padding: attention's memory grows with them


class OnnxGraph:
    """
    Args:
        pooling: mean or cls of the output's token vectors; none where it has one vector a text.
        runs_alone: a graph whose activations are quantized by the largest of the whole batch.
    """

    def __init__(
        self,
        file: Path,
        *,
        output: str,
        pooling: str,
        pad_id: int,
        runs_alone: bool,
        threads: int,
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {one.name for one in self._session.get_inputs()}
        self._output, self._pooling, self._pad_id = output, pooling, pad_id
        self._runs_alone = runs_alone

    def vectors(self, sequences: Sequence[TokenSequence]) -> npt.NDArray[np.float32]:
        """[n, numbers]. Sequences of about one length run together."""
        parts, order = [], []
        for group in self._groups(sequences):
            parts.append(self._run([sequences[at] for at in group]))
            order += group
        found = np.concatenate(parts)
        return found[np.argsort(order)]

    def _groups(self, sequences: Sequence[TokenSequence]) -> Iterator[list[int]]:
        group: list[int] = []
        for at in sorted(range(len(sequences)), key=lambda one: len(sequences[one].ids)):
            is_full = (len(group) + 1) * len(sequences[at].ids) > TOKENS_A_RUN
            if group and (is_full or self._runs_alone):
                yield group
                group = []
            group.append(at)
        yield group

    def _run(self, sequences: list[TokenSequence]) -> npt.NDArray[np.float32]:
        shape = len(sequences), len(sequences[-1].ids)
        ids = np.full(shape, self._pad_id, dtype=np.int64)
        types, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, sequence in enumerate(sequences):
            length = len(sequence.ids)
            ids[row, :length], types[row, :length] = sequence.ids, sequence.types
            mask[row, :length] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        inputs = {name: array for name, array in given.items() if name in self._inputs}
        output = np.asarray(self._session.run([self._output], inputs)[0], dtype=np.float32)
        if self._pooling == "none":
            return output
        if self._pooling == "cls":
            return output[:, 0]
        weights = mask[:, :, None].astype(np.float32)
        return np.asarray((output * weights).sum(axis=1) / weights.sum(axis=1), dtype=np.float32)
