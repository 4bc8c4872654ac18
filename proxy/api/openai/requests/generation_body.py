"""The fields that chat completions and completions share.

Fields that are not declared are refused by name; null is the same as not given.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, StringConstraints, model_validator

from proxy.api.bodies.validation_errors import FieldError
from proxy.api.openai.requests.field_types import (
    INT32_MAX,
    AnyTokenIds,
    Bias,
    DictOf,
    Label,
    ListOf,
    Metadata,
    Penalty,
    Probability,
    RequestBody,
    Stop,
    StopString,
    TokenIdKey,
    TokenIds,
    TokenLimit,
    only,
)
from proxy.api.openai.requests.format_body import FormatBody
from proxy.api.openai.requests.prompt_body import PromptBody
from proxy.domain.errors import ErrorCode
from proxy.domain.request import Sampling

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


MOST_CHOICES = 128
ServiceTier = Annotated[
    Literal["auto", "default", "flex", "scale", "priority", "fast"], only("auto", "default")
]
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]


class StreamOptions(RequestBody):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Annotated[bool, only(False)] | None = None


class GenerationBody(SamplingBody, PromptBody, FormatBody):
    """The fields that chat completions and completions share."""

    model: str
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    include_timings: bool | None = None
    return_token_ids: bool | None = None
    priority: Annotated[int, Field(ge=-INT32_MAX, le=INT32_MAX)] | None = None
    cache_salt: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    request_id: RequestId | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    metadata: Metadata | None = None
    store: Annotated[bool, only(False)] | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: Label | None = None

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> GenerationBody:
        if self.stream_options is not None and not self.stream:
            raise FieldError(
                "stream_options", "'stream_options' is only allowed when 'stream' is true"
            )
        return self

    @model_validator(mode="after")
    def _annotations_need_stream(self) -> GenerationBody:
        if self.nvext is not None and self.nvext.annotations and not self.stream:
            raise FieldError(
                "nvext.annotations",
                "'nvext.annotations' are only sent in a stream: set 'stream', or use "
                "'nvext.extra_fields'",
            )
        return self

    @model_validator(mode="after")
    def _special_tokens_stand_close(self) -> GenerationBody:
        if self.spaces_between_special_tokens and self.skip_special_tokens is False:
            raise FieldError(
                "spaces_between_special_tokens",
                "'spaces_between_special_tokens' is not supported by this server: it adds no "
                "spaces around special tokens",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return self

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def has_continuous_usage(self) -> bool:
        """Whether every chunk has usage. This needs no `include_usage`, but false turns it off."""
        options = self.stream_options
        return bool(
            options and options.continuous_usage_stats and options.include_usage is not False
        )

    def shared(self, top_log_probs: int | None) -> dict[str, Any]:
        """The shared fields of a GenerationRequest.

        In vLLM's `priority` lower numbers go first, in the engine's higher ones.
        """
        return {
            "model": self.model,
            "sampling": self.sampling(top_log_probs),
            "stop": self.stops,
            "includes_stop": bool(self.include_stop_str_in_output),
            "choices": self.n or 1,
            "reports_usage": self.has_continuous_usage,
            "returns_token_ids": bool(self.return_token_ids),
            "skips_special_tokens": self.skip_special_tokens is not False,
            "priority": None if self.priority is None else -self.priority,
            "cache_salt": self.cache_salt,
            "user": self.user,
            "safety_identifier": self.safety_identifier,
            "metadata": self.metadata or {},
            **self.prompt_fields(),
        }

    def _check_min_tokens(self, most: int | None) -> None:
        if most is not None and (self.min_tokens or 0) > most:
            raise FieldError(
                "min_tokens", f"'min_tokens' is {self.min_tokens}, more than the limit of {most}"
            )
