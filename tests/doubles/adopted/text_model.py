"""A model that a team wrote: PROMPT in, OUTPUT out; MAX_TOKENS is all it takes beside that."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from stand_in import Answer, StandIn, tensor, text

from port import FinishReason, GenerationInput, SamplingParams, Token
from request_tensors import scalar


class TextModel(StandIn):
    """Greedy. Decoupled, it adds to OUTPUT; otherwise it answers once."""

    failed = "ValueError: "

    def start(self, request: Any) -> None:
        ids = self.words.ids(text(request, "PROMPT"))
        if len(ids) >= self.words.context_length:
            raise ValueError("the prompt is too long")
        wanted = GenerationInput(
            prompt_ids=ids,
            max_tokens=scalar(request, "MAX_TOKENS") or 64,
            sampling=SamplingParams(temperature=0.0),
        )
        streams = pb_utils.using_decoupled_model_transaction_policy(self.config)
        self.generate(request, wanted, TextAnswer(self), streams=streams)


class TextAnswer:
    def __init__(self, model: TextModel) -> None:
        self._answer = Answer(model.words)

    def __call__(self, tokens: list[Token], finish: FinishReason | None) -> list[Any]:
        return [tensor("OUTPUT", [self._answer.add(tokens, finish).encode()], np.object_)]
