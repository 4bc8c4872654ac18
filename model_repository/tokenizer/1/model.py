"""Triton model `tokenizer`: text or ids -> input_ids, and how many new tokens may follow.

It refuses prompts that do not fit and guides that cannot be used, before the engine sees them. The
message of an error is JSON `{"code", "param", "message", "request_id"}`, which the proxy turns into
an API error. Each answer names its request, because Triton can hand it to another one, see the
detokenizer.
"""

from __future__ import annotations

import asyncio  # noqa: F401  otherwise Triton's stub imports it during the first request
import ctypes
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

from admission import Admission
from guide_check.check import MB, GuideCheck
from prompt_encoder import PromptEncoder, bad_words_list
from refusal import Refusal
from request import Request

# How long a guide delays the prompts behind it, if its client can send the request again.
GUIDE_PATIENCE_S = 0.1


class TritonPythonModel:
    """One prompt a request; the tokenizer is the model's own tokenizer.json."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {k: v["string_value"] for k, v in config["parameters"].items()}
        artifacts = Path(args["model_repository"], parameters["artifacts_dir"])
        self._guide_check = GuideCheck(
            artifacts / "guide.json",
            timeout_s=float(parameters["guide_timeout_s"]),
            compile_s=float(parameters.get("guide_compile_s", parameters["guide_timeout_s"])),
            memory_bytes=int(parameters["guide_memory_mb"]) * MB,
            kinds=[kind for kind in parameters["guide_kinds"].split(",") if kind],
        )
        self._guide_check.start()  # while the rest starts
        self._admission = Admission(
            context_length=int(parameters["context_length"]),
            vocab_size=int(parameters["vocab_size"]),
            default_max_tokens=int(parameters.get("default_max_tokens", 0)) or None,
        )
        self._encoder = PromptEncoder(_tokenizer(artifacts), self._admission)
        self._executor_inputs = _executor_inputs(parameters)
        ctypes.CDLL(None).malloc_trim(0)  # reading the vocabulary leaves 15 MB free in malloc
        self._guide_check.wait_until_started()

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._respond(request) for request in requests]

    def finalize(self) -> None:
        self._guide_check.close()

    def _respond(self, request: Any) -> Any:
        try:
            return pb_utils.InferenceResponse(self._outputs(Request(request)))
        except Refusal as refusal:
            message = refusal.as_json(request.request_id())
            error = pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)

    def _outputs(self, request: Request) -> list[Any]:
        """The tensors of the response. Raises Refusal."""
        self._check_guide(request)
        limits = request.limits
        given, generated = request.split_ids()
        prompt = self._encoder.prompt_ids(request, given, limits)
        self._admission.check_prompt(len(prompt), limits)
        new_tokens = self._admission.new_tokens(
            len(prompt), request.max_tokens, limits, may_be_none=request.echoes_prompt
        )
        self._admission.check_generated(generated, len(prompt))
        ids = np.concatenate((prompt, np.array(generated, dtype=np.int32)))
        bad_words = bad_words_list(request.bad_words, self._encoder.word_ids)
        outputs = [
            pb_utils.Tensor("input_ids", ids.reshape(1, -1)),
            pb_utils.Tensor("request_output_len", np.array([[new_tokens]], dtype=np.int32)),
            pb_utils.Tensor("bad_words_list", bad_words),
            pb_utils.Tensor("tokenized_for", np.array([[request.id.encode()]], dtype=np.object_)),
        ]
        if self._executor_inputs is not None:
            others = self._executor_inputs.of(request.elements, prompt_tokens=len(ids))
            outputs += [pb_utils.Tensor(name, array) for name, array in others.items()]
        return outputs

    def _check_guide(self, request: Request) -> None:
        if (guide := request.guide) is not None:
            patience_s = GUIDE_PATIENCE_S if request.accepts_pending_guide else math.inf
            self._guide_check.check(*guide, patience_s=patience_s)


def _tokenizer(artifacts: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(artifacts / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _executor_inputs(parameters: dict[str, str]) -> Any:
    """None if the engine is not TensorRT-LLM's C++ backend, see model_repository/tensorrt_llm."""
    if "executor_end_ids" not in parameters:
        return None
    from executor_inputs import ExecutorInputs

    return ExecutorInputs(
        end_ids=tuple(int(i) for i in parameters["executor_end_ids"].split(",") if i),
        logits_size=int(parameters["logits_size"]),
    )
