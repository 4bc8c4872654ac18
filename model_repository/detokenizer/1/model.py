"""Triton model `detokenizer`: token ids -> the raw bytes of each token.

Stateless: joining bytes to text across chunks is the client's, which holds the stream's state.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from token_bytes import TokenBytes


class TritonPythonModel:
    """Looks each id up in the table that `build` made from the tokenizer."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        artifacts = config["parameters"]["artifacts_dir"]["string_value"]
        self._table = TokenBytes.load(Path(args["model_repository"], artifacts, "token_bytes.npz"))

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        ids = pb_utils.get_input_tensor_by_name(request, "output_ids").as_numpy().ravel()
        texts = np.array(self._table.lookup(ids.tolist()), dtype=np.object_).reshape(1, -1)
        return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", texts)])
