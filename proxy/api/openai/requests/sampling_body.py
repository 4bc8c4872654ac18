"""The fields of a body that control sampling and the end of an answer."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import Field

from triton_openai.proxy.api.openai.requests.field_types import (
    INT32_MAX,
    AnyTokenIds,
    Bias,
    DictOf,
    ListOf,
    Penalty,
    Probability,
    RequestBody,
    Stop,
    StopString,
    TokenIdKey,
    TokenIds,
    TokenLimit,
)
from triton_openai.proxy.domain.request import Sampling

Item = TypeVar("Item", int, str)


class SamplingBody(RequestBody):
    """The fields that chat completions and completions share. `top_k` -1 and 0 keep all tokens."""

    max_tokens: TokenLimit | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=-1, le=INT32_MAX)] | None = None
    min_p: Probability | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    logit_bias: DictOf[TokenIdKey, Bias] | None = None
    allowed_token_ids: TokenIds | None = None
    bad_words: ListOf[StopString] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    ignore_eos: bool | None = None
    stop: Stop | None = None
    stop_token_ids: AnyTokenIds | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None

    def sampling(self, top_log_probs: int | None) -> Sampling:
        bias = self.logit_bias or {}
        return Sampling(
            temperature=self.temperature,
            top_k=None if self.top_k is None else max(self.top_k, 0),
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=tuple((int(token), value) for token, value in bias.items()) or None,
            allowed_token_ids=_given(self.allowed_token_ids),
            bad_words=_given(self.bad_words),
            min_tokens=self.min_tokens or None,
            ignore_eos=self.ignore_eos or None,
            stop_token_ids=_given(self.stop_token_ids),
            top_log_probs=top_log_probs,
        )

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


def _given(values: list[Item] | None) -> tuple[Item, ...] | None:
    """The values; None for an empty list, which is the same as none given."""
    return tuple(values) if values else None
