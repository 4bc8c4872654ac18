"""Filling in the middle: prefix and suffix -> the prompt that the models are trained on."""

from __future__ import annotations

from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import TextPrompt


def text_of(prompt: TextPrompt, card: ModelCard) -> str:
    """The prompt: prefix, suffix, then the answer. All model families support this order.

    Raises:
        InvalidRequest: there is a suffix, and the model has no tokens for it.
    """
    if prompt.suffix is None:
        return prompt.text
    if card.facts.infilling is None:
        raise InvalidRequest(
            f"The model {card.name!r} was not trained to fill in the middle: its tokenizer has no "
            "such tokens. Leave out 'suffix'.",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
            param="suffix",
        )
    before_prefix, before_suffix, before_middle = card.facts.infilling
    return f"{before_prefix}{prompt.text}{before_suffix}{prompt.suffix}{before_middle}"
