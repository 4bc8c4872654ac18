"""Triton model `tokenizer`: text or ids -> input_ids, and how many new tokens may follow.

Refuses what cannot fit before the engine sees it. An error's message is JSON
`{"code", "param", "message"}`, which the proxy turns into the API's error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from admission import Admission, Refusal
from tokenizers import Tokenizer

START_CHARACTERS_A_TOKEN = 4


class TritonPythonModel:
    """One prompt a request; the tokenizer is the model's own tokenizer.json."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        artifacts = Path(args["model_repository"], parameters["artifacts_dir"]["string_value"])
        self._tokenizer = Tokenizer.from_file(str(artifacts / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._admission = Admission(
            context_length=int(parameters["context_length"]["string_value"]),
            vocab_size=int(parameters["vocab_size"]["string_value"]),
            default_max_tokens=(
                int(parameters["default_max_tokens"]["string_value"])
                if "default_max_tokens" in parameters
                else None
            ),
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        try:
            ids = self._prompt_ids(request)
            output_len = self._admission.output_len(ids, _scalar(request, "max_tokens"))
        except Refusal as refusal:
            error = pb_utils.TritonError(refusal.as_json(), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("input_ids", np.array([ids], dtype=np.int32)),
                pb_utils.Tensor("request_output_len", np.array([[output_len]], dtype=np.int32)),
            ]
        )

    def _prompt_ids(self, request: Any) -> list[int]:
        """text_input's tokens, then input_ids."""
        ids: list[int] = []
        text = _scalar(request, "text_input")
        if text is not None:
            special = _scalar(request, "add_special_tokens")
            ids += self._encode(text, add_special_tokens=special is None or bool(special))
        given = pb_utils.get_input_tensor_by_name(request, "input_ids")
        if given is not None:
            ids += self._admission.checked_ids(given.as_numpy().ravel().tolist())
        return ids

    def _encode(self, text: bytes, *, add_special_tokens: bool) -> list[int]:
        try:
            decoded = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refusal("invalid_parameter", "prompt", f"text is not UTF-8: {error}") from error
        size = START_CHARACTERS_A_TOKEN * self._admission.context_length
        while size < len(decoded):  # ten megabytes would hold up everyone for half a minute
            start = self._tokenizer.encode(decoded[:size], add_special_tokens=False)
            self._admission.check_start(len(start))
            size *= 2
        encoding = self._tokenizer.encode(decoded, add_special_tokens=add_special_tokens)
        return list(encoding.ids)


def _scalar(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().ravel()[0]
