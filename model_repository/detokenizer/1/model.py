"""Triton model `detokenizer`: token ids -> the raw bytes of each token, and of each alternative.

Stateless: the client holds the stream's state, and joins the bytes of several responses to text.
"""

from __future__ import annotations

import asyncio  # noqa: F401  otherwise Triton's stub imports it during the first request
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from parent_watch import end_with_parent
from token_bytes import TokenBytes


class TritonPythonModel:
    """Looks up each id in the table that `build` made from the tokenizer."""

    def initialize(self, args: dict[str, str]) -> None:
        end_with_parent()
        config = json.loads(args["model_config"])
        artifacts = config["parameters"]["artifacts_dir"]["string_value"]
        self._table = TokenBytes.load(Path(args["model_repository"], artifacts, "token_bytes.npz"))

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        ids = pb_utils.get_input_tensor_by_name(request, "output_ids").as_numpy().reshape(1, -1)
        length = pb_utils.get_input_tensor_by_name(request, "sequence_length")
        if length is not None:
            ids = ids[:, : length.as_numpy().item()]
        tensors = [pb_utils.Tensor("text_output", self._texts(ids))]
        top = pb_utils.get_input_tensor_by_name(request, "top_log_prob_ids")
        if top is not None:
            tensors.append(pb_utils.Tensor("top_log_prob_text", self._texts(top.as_numpy())))
        log_probs = pb_utils.get_input_tensor_by_name(request, "output_log_probs")
        if log_probs is not None:
            newest = newest_log_probs(log_probs.as_numpy(), ids.size)
            tensors.append(pb_utils.Tensor("new_log_probs", newest))
        return pb_utils.InferenceResponse(tensors)

    def _texts(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.object_]:
        texts = np.empty(ids.size, dtype=np.object_)
        texts[:] = self._table.lookup(ids.ravel().tolist())
        return texts.reshape(ids.shape)


def newest_log_probs(log_probs: npt.NDArray[np.float32], tokens: int) -> npt.NDArray[np.float32]:
    """Cuts the response's own log-probabilities, the last ones, from those of the whole stream.

    TensorRT-LLM's C++ backend sends [1, 1, tokens so far] each time. Returns [1, 1, tokens]. Raises
    ValueError if there are fewer.
    """
    so_far = log_probs.ravel()
    if len(so_far) < tokens:
        raise ValueError(f"TensorRT-LLM sent {len(so_far)} log-probabilities for {tokens} tokens")
    return so_far[len(so_far) - tokens :].reshape(1, 1, tokens)
