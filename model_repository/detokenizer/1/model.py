"""Triton model `detokenizer`: token ids -> the raw bytes of each token, and of each alternative.

Stateless: the client holds the stream's state, and joins the bytes of several responses to text.

Triton can hand an answer of this model to another request: if this process stands still for a
second, Triton fails the request that waits for it, the next request receives the late answer, and
so on until the process ends (python_backend f9088ff, StubLauncher::ReceiveMessageFromStub). So each
answer has a `receipt`, which the client compares with the engine's ids: a late one does not match.
A late batch may have fewer answers than the awaited one, and Triton does not compare their numbers:
that ends in a crash or in silence, after which the stream continues on the server that comes next.
"""

from __future__ import annotations

import asyncio  # noqa: F401  otherwise Triton's stub imports it during the first request
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from token_bytes import TokenBytes


class TritonPythonModel:
    """Looks up each id in the table that `build` made from the tokenizer."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        artifacts = config["parameters"]["artifacts_dir"]["string_value"]
        self._table = TokenBytes.load(Path(args["model_repository"], artifacts, "token_bytes.npz"))

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        """An error is its own request's; raised, it would be the answer of all of the batch."""
        try:
            return self._respond(request)
        except ValueError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))

    def _respond(self, request: Any) -> Any:
        if pb_utils.get_input_tensor_by_name(request, "end_process") is not None:
            os._exit(1)  # the client has seen a late answer; the supervisor starts Triton again
        ids = pb_utils.get_input_tensor_by_name(request, "output_ids").as_numpy().reshape(1, -1)
        answered = [ids]
        length = pb_utils.get_input_tensor_by_name(request, "sequence_length")
        if length is not None:
            ids = ids[:, : length.as_numpy().item()]
        tensors = [pb_utils.Tensor("text_output", self._texts(ids))]
        top = pb_utils.get_input_tensor_by_name(request, "top_log_prob_ids")
        if top is not None:
            tensors.append(pb_utils.Tensor("top_log_prob_text", self._texts(top.as_numpy())))
            answered.append(top.as_numpy().reshape(1, -1))
        log_probs = pb_utils.get_input_tensor_by_name(request, "output_log_probs")
        if log_probs is not None:
            newest = newest_log_probs(log_probs.as_numpy(), ids.size)
            tensors.append(pb_utils.Tensor("new_log_probs", newest))
        answered.append(_mark(request.request_id()))
        tensors.append(pb_utils.Tensor("receipt", np.concatenate(answered, axis=1)))
        return pb_utils.InferenceResponse(tensors)

    def _texts(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.object_]:
        texts = np.empty(ids.size, dtype=np.object_)
        texts[:] = self._table.lookup(ids.ravel().tolist())
        return texts.reshape(ids.shape)


def _mark(request_id: str) -> npt.NDArray[np.int32]:
    """The CRC-32 of the request's id, as [1, 1]."""
    return np.array([[zlib.crc32(request_id.encode())]], dtype=np.uint32).view(np.int32)


def newest_log_probs(log_probs: npt.NDArray[np.float32], tokens: int) -> npt.NDArray[np.float32]:
    """Cuts the response's own log-probabilities, the last ones, from those of the whole stream.

    TensorRT-LLM's C++ backend sends [1, 1, tokens so far] each time. Returns [1, 1, tokens]. Raises
    ValueError if there are fewer.
    """
    so_far = log_probs.ravel()
    if len(so_far) < tokens:
        raise ValueError(f"TensorRT-LLM sent {len(so_far)} log-probabilities for {tokens} tokens")
    return so_far[len(so_far) - tokens :].reshape(1, 1, tokens)
