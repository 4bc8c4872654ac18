"""The model `llmapi` of TensorRT-LLM's Triton backend: sampling parameters as prefixed tensors.

Read in NVIDIA/TensorRT-LLM, triton_backend/all_models/llmapi/tensorrt_llm: config.pbtxt at c8c6df08
(2025) and 0a710573 (2026-10), 1/model.py at 044a90d2 (2026-02), 1/helpers.py at 0df60f9a (2026-09).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tritonclient.grpc import service_pb2

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ProxyError
from proxy.triton.dialects.dialect import Declared, Read, fitting, infer_request, too_long
from proxy.triton.dialects.text_answers import (
    Answer,
    AnswerReader,
    named,
    token_limit,
    trtllm_sampling,
)

PREFIX = "sampling_param_"
# Its own stop strings, LoRA and images are not among them: the first get bytes where text is meant,
# the second need a path on the server, and the third are ignored unless model.yaml says otherwise.
SAMPLING = ("temperature", "top_k", "top_p", "frequency_penalty", "presence_penalty", "seed")
INPUTS = {name: PREFIX + name for name in (*SAMPLING, "max_tokens")}
ANSWER = Answer(finish="finish_reason", is_cumulative=True)  # CompletionOutput.text, not text_diff
TOO_LONG = re.compile(r"should not exceed max_|default_max_tokens.*greater than 0")


class Llmapi:
    """See Dialect."""

    def capabilities(self, declared: Declared) -> Collection[str] | None:
        is_llmapi = (
            not declared.has_batches  # which its own code refuses
            and declared.takes(
                text_input="BYTES", streaming="BOOL", sampling_param_max_tokens="INT32"
            )
            and declared.gives(text_output="BYTES", finish_reason="BYTES")
            and declared.required == {"text_input"}
        )
        if not is_llmapi:
            return None
        return fitting(INPUTS, declared.inputs)

    def notes(self, declared: Declared) -> list[str]:
        found = []
        if not declared.is_decoupled:
            found.append(
                "not decoupled, so an answer comes in one piece: write model_transaction_policy "
                "{ decoupled: true } into its config.pbtxt"
            )
        if "stop" not in declared.inputs:
            found.append("its version does not notice that a client left")
        return found

    def encode(self, request: EngineRequest) -> service_pb2.ModelInferRequest:
        adopted = request.model.facts.adopted
        values = {**trtllm_sampling(request, SAMPLING), "max_tokens": token_limit(request)}
        return infer_request(
            request,
            (
                ("text_input", request.text or ""),
                ("streaming", adopted is not None and adopted.is_decoupled),
                (f"{PREFIX}exclude_input_from_output", True),
                ("return_finish_reason", True),
                *named(values, INPUTS),
            ),
        )

    def reader(self, request: EngineRequest, prompt_tokens: int | None) -> Read:
        return AnswerReader(request, ANSWER, prompt_tokens).read

    def stop(self, request: EngineRequest) -> None:
        """It looks for cancelled calls ten times a second."""
        return None

    def error(self, message: str, request: EngineRequest) -> ProxyError | None:
        return too_long(message) if TOO_LONG.search(message) else None
