"""Triton model `embedding`: texts or token ids -> a vector each, or two texts -> their score.

Triton's dynamic batcher puts requests together. A request may have several rows. Equal texts are
computed once. The message of an error is JSON, as the tokenizer's. Each answer names its
request, because Triton can hand it to another one, see the detokenizer.
"""

from __future__ import annotations

import asyncio  # noqa: F401  otherwise Triton's stub imports it during the first request
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from encoder import Encoder, Refusal, TokenSequence
from static_table import StaticTable

Vectors = npt.NDArray[np.float32]

SMALLEST = float(np.finfo(np.float32).tiny)


class Pooler(Protocol):
    def vectors(self, sequences: Sequence[TokenSequence]) -> Vectors: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. rows: what one answer each is made of: one sequence, or two to compare."""

    id: str
    rows: list[tuple[TokenSequence, ...]]
    dimensions: int | None


class TritonPythonModel:
    """What it is, stands in the parameters that `build` wrote."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {k: v["string_value"] for k, v in config["parameters"].items()}
        folder = Path(args["model_repository"], parameters["artifacts_dir"])
        file = folder / "weights" / parameters["file"]
        is_static = "table_shape" in parameters
        left_out = parameters.get("unknown_id")
        self._is_cross_encoder = parameters["task"] == "score"
        self._normalizes = parameters["normalize"] == "1"
        self._has_sigmoid = parameters.get("activation") == "sigmoid"
        self._encoder = Encoder(
            folder / "tokenizer.json",
            context_length=int(parameters["context_length"]),
            vocab_size=int(parameters["vocab_size"]),
            adds_special_tokens=not is_static,
            left_out=None if left_out is None else int(left_out),
        )
        self._model: Pooler
        if is_static:
            rows, width = map(int, parameters["table_shape"].split(","))
            self._model = StaticTable(
                file,
                dtype=parameters["table_dtype"],
                offset=int(parameters["table_offset"]),
                shape=(rows, width),
            )
        else:
            from onnx_graph import OnnxGraph  # a static model needs no ONNX Runtime

            self._model = OnnxGraph(
                file,
                output=parameters["output"],
                pooling=parameters["pooling"],
                pad_id=int(parameters["pad_id"]),
                runs_alone=parameters["runs_alone"] == "1",
                threads=int(parameters["threads"]),
            )

    def execute(self, requests: list[Any]) -> list[Any]:
        calls: list[Call | Refusal] = [self._read(request) for request in requests]
        vectors = self._vectors(call for call in calls if isinstance(call, Call))
        return [
            self._response(call, vectors)
            if isinstance(call, Call)
            else _error(call.as_json(request.request_id()))
            for request, call in zip(requests, calls, strict=True)
        ]

    def _read(self, request: Any) -> Call | Refusal:
        """A refusal is returned, not raised: it is its own request's, not all of the batch's."""
        if _elements(request, "end_process") is not None:
            os._exit(1)  # the client has seen a late answer; the supervisor starts Triton again
        texts, pairs = _texts(request, "text_input"), _texts(request, "text_pair")
        most, ids = _integer(request, "max_prompt_tokens"), _elements(request, "input_ids")
        rows: list[tuple[TokenSequence, ...]] = []
        try:
            for row, given in enumerate([] if ids is None else ids.tolist()):
                rows.append((self._encoder.of_ids(given, row, most),))
            for row, text in enumerate(texts or ()):
                pair = None if pairs is None else pairs[row]
                if pair is None or self._is_cross_encoder:
                    rows.append((self._encoder.of_text(text, pair, row, most),))
                else:
                    both = [self._encoder.of_text(one, None, row, most) for one in (text, pair)]
                    rows.append(tuple(both))
        except Refusal as refusal:
            return refusal
        if not rows:
            return Refusal("invalid_parameter", "There is neither a text nor token ids.", 0)
        dimensions = _integer(request, "dimensions")
        return Call(id=request.request_id(), rows=rows, dimensions=dimensions)

    def _vectors(self, calls: Iterator[Call]) -> dict[TokenSequence, Vectors]:
        """Before they are cut or normalized."""
        sequences = dict.fromkeys(one for call in calls for row in call.rows for one in row)
        if not sequences:
            return {}
        found = self._model.vectors([self._encoder.known(one) for one in sequences])
        return dict(zip(sequences, found, strict=True))

    def _response(self, call: Call, vectors: dict[TokenSequence, Vectors]) -> Any:
        pooled = np.stack([self._pooled(row, vectors, call.dimensions) for row in call.rows])
        tokens = [[sum(len(one.ids) for one in row)] for row in call.rows]
        names = np.array([[call.id.encode()]] * len(call.rows), dtype=np.object_)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("pooled", pooled),
                pb_utils.Tensor("num_input_tokens", np.array(tokens, dtype=np.int32)),
                pb_utils.Tensor("pooled_for", names),
            ]
        )

    def _pooled(
        self,
        row: tuple[TokenSequence, ...],
        vectors: dict[TokenSequence, Vectors],
        dimensions: int | None,
    ) -> Vectors:
        first = vectors[row[0]]
        if self._is_cross_encoder:
            return 1 / (1 + np.exp(-first)) if self._has_sigmoid else first
        if len(row) == 2:
            cosine = _unit(first) @ _unit(vectors[row[1]])
            return np.array([cosine], dtype=np.float32)
        kept = first[:dimensions]
        return _unit(kept) if self._normalizes else kept


def _unit(vector: Vectors) -> Vectors:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), SMALLEST), dtype=np.float32)


def _error(message: str) -> Any:
    error = pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
    return pb_utils.InferenceResponse(error=error)


def _elements(request: Any, name: str) -> npt.NDArray[Any] | None:
    """[rows, elements]; None if the tensor is absent."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else np.asarray(tensor.as_numpy())


def _texts(request: Any, name: str) -> list[str] | None:
    elements = _elements(request, name)
    return None if elements is None else [one.decode() for one in elements.ravel().tolist()]


def _integer(request: Any, name: str) -> int | None:
    elements = _elements(request, name)
    return None if elements is None else int(elements.ravel()[0])
