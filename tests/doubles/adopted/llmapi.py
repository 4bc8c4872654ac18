"""Stands in for TensorRT-LLM's `llmapi` model: model.py 044a90d2, helpers.py 0df60f9a."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from stand_in import FINAL, Answer, StandIn, flag, strings, tensor, text

from port import FinishReason, GenerationInput, SamplingParams, Token
from request_tensors import scalar

PREFIX = "sampling_param_"
SAME = ("temperature", "top_k", "top_p", "presence_penalty", "frequency_penalty", "seed")
DRAWING = ("temperature", "top_k", "top_p")
DEFAULT_MAX_TOKENS = 32
TOO_LONG = (
    "`default_max_tokens` ({room}) must be greater than 0, `default_max_tokens` ({room}) = "
    "max_seq_len ({most}) - `splited_prompt_len` ({prompt}) - `query_token_len` (0)"
)


class Llmapi(StandIn):
    failed = "Error generating request: "
    cancelled_as = "Request cancelled by client"

    def start(self, request: Any) -> None:
        if flag(request, "stop"):
            self._stop(request)
            return
        streams = flag(request, "streaming")
        if streams and not pb_utils.using_decoupled_model_transaction_policy(self.config):
            raise ValueError("Streaming is only supported in decoupled mode.")
        if pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().ndim > 1:
            raise ValueError(
                "The current implementation only supports text_input being a 1D tensor."
            )
        if strings(request, f"{PREFIX}stop"):
            raise TypeError(
                "TextEncodeInput must be Union[TextInputSequence, …]"
            )  # bytes, not text
        prompt = text(request, "text_input")
        wanted = self._input(request, self.words.ids(prompt))
        excludes = streams or flag(request, f"{PREFIX}exclude_input_from_output")
        shape = LlmapiAnswer(self, request, "" if excludes else prompt)
        self.generate(request, wanted, shape, streams=streams)

    def _stop(self, request: Any) -> None:
        if request.request_id():
            self.cancel(request.request_id())
            error = pb_utils.TritonError(self.cancelled_as, pb_utils.TritonError.CANCELLED)
        else:
            error = pb_utils.TritonError("A request id must be provided for request cancellation")
        response = pb_utils.InferenceResponse(error=error)
        request.get_response_sender().send(response, flags=FINAL)

    def _input(self, request: Any, ids: list[int]) -> GenerationInput:
        room = self.words.context_length - len(ids)
        if room < 1:
            most = self.words.context_length
            raise ValueError(TOO_LONG.format(room=room, most=most, prompt=len(ids)))
        given = {name: scalar(request, PREFIX + name) for name in SAME}
        known = {name: value for name, value in given.items() if value is not None}
        if not any(name in known for name in DRAWING):
            known["top_k"] = 1  # greedy
        most = scalar(request, f"{PREFIX}max_tokens") or DEFAULT_MAX_TOKENS
        sampling = SamplingParams(**{"seed": 0, **known})
        return GenerationInput(prompt_ids=ids, max_tokens=min(most, room), sampling=sampling)


class LlmapiAnswer:
    """The whole text so far, in each response."""

    def __init__(self, model: Llmapi, request: Any, prompt: str) -> None:
        self._text, self._answer = prompt, Answer(model.words)
        self._has_reason = flag(request, "return_finish_reason")
        self._has_stop_reason = flag(request, "return_stop_reason")

    def __call__(self, tokens: list[Token], finish: FinishReason | None) -> list[Any]:
        self._text += self._answer.add(tokens, finish)
        tensors = [tensor("text_output", [self._text.encode()], np.object_)]
        if self._has_reason:
            tensors.append(tensor("finish_reason", [str(finish)], np.object_))
        if self._has_stop_reason:
            tensors.append(tensor("stop_reason", ["None"], np.object_))
        return tensors
