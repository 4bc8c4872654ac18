"""The fields that chat completions and completions share.

Fields that are not declared are refused by name; null is the same as not given. A priority may
be in `priority`, in a hint of `nvext`, in `metadata`, and in `service_tier`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import (
    INT32_MAX,
    MOST_STOPS,
    AnyTokenIds,
    Bias,
    DictOf,
    Label,
    ListOf,
    Metadata,
    Most,
    Only,
    Penalty,
    Probability,
    RequestBody,
    Stop,
    StopString,
    TokenIdKey,
    TokenIds,
    TokenLimit,
)
from proxy.api.openai.response_format import FormatBody, GuidedBody
from proxy.domain.errors import ErrorCode, InvalidRequest, echoed
from proxy.domain.request import PromptLimit, Sampling
from proxy.language.structured.constraint_request import ConstraintRequest

AnnotationName = Literal["request_id", "formatted_prompt", "token_ids", "timing"]
ExtraField = Literal["timing", "worker_id"]


class AgentHints(RequestBody):
    """`priority`: higher numbers go first."""

    priority: Annotated[int, Field(ge=-INT32_MAX, le=INT32_MAX)] | None = None


class NvExt(GuidedBody):
    """The fields of Dynamo's and NIM's clients. Dynamo's `greed_sampling` is `greedy_sampling`."""

    ignore_eos: bool | None = None
    top_k: Annotated[int, Field(ge=-1, le=INT32_MAX)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    greedy_sampling: bool | None = None
    greed_sampling: bool | None = None
    use_raw_prompt: bool | None = None
    annotations: ListOf[AnnotationName] | None = None
    extra_fields: ListOf[ExtraField] | None = None
    token_data: TokenIds | None = None
    max_thinking_tokens: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    agent_hints: AgentHints | None = None

    @model_validator(mode="after")
    def _two_names_say_the_same(self) -> NvExt:
        if len({self.greedy_sampling, self.greed_sampling} - {None}) > 1:
            raise FieldError(
                "nvext.greed_sampling",
                "'nvext.greed_sampling' and 'nvext.greedy_sampling' are the same field; "
                "given as true and false",
            )
        return self


class NvExtBody(FormatBody):
    """A body with the field `nvext`."""

    nvext: NvExt | None = None

    def _guides(self) -> list[ConstraintRequest]:
        """The body's own guides, and those of `nvext` that differ from them."""
        own = self.guided()
        known = [(one.form, one.value) for one in own]
        extra = self.nvext.guided("nvext.") if self.nvext else []
        return own + [one for one in extra if (one.form, one.value) not in known]


# Names of the domain's fields and of tensors -> names of OpenAI's fields, for errors.
FIELD_NAMES = {
    "choices": "n",
    "log_probs": "logprobs",
    "top_log_probs": "top_logprobs",
    "num_top_log_probs": "top_logprobs",
    "return_log_probs": "logprobs",
    "token_ids": "return_token_ids",
    "log_prob_ids": "return_tokens_as_token_ids",
    "echo_prompt": "echo",
    "special_text": "skip_special_tokens",
    "prompt_limit": "truncate_prompt_tokens",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "logit_bias_ids": "logit_bias",
    "logit_bias_values": "logit_bias",
    "bad_words_list": "bad_words",
}

IN_METADATA = "metadata.priority"
IN_NVEXT = "nvext.agent_hints.priority"
INTEGER = re.compile(r"[+-]?[0-9]+")

MOST_CHOICES = 128
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]


class PromptCacheOptions(RequestBody):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m"] | None = None


class StreamOptions(RequestBody):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Annotated[bool, Only(False)] | None = None


def _not_zero(tokens: int) -> int:
    if tokens == 0:
        raise ValueError("must be 1 or more, or -1 for as many as fit")
    return tokens


class GenerationBody(NvExtBody):
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
    logit_bias: Annotated[DictOf[TokenIdKey, Bias] | None, Most(1024)] = None
    allowed_token_ids: Annotated[TokenIds | None, Most(16_384)] = None
    bad_words: Annotated[ListOf[StopString] | None, Most(1024)] = None
    min_tokens: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    ignore_eos: bool | None = None
    stop: Annotated[Stop | None, MOST_STOPS] = None
    stop_token_ids: Annotated[AnyTokenIds | None, MOST_STOPS] = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: (
        Annotated[
            int,
            Field(ge=-1, le=INT32_MAX, json_schema_extra={"not": {"const": 0}}),
            AfterValidator(_not_zero),
        ]
        | None
    ) = None
    truncation_side: Literal["left", "right"] | None = None
    return_tokens_as_token_ids: bool | None = None
    spaces_between_special_tokens: bool | None = None
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
    store: Annotated[bool, Only(False)] | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    # The path of the field that asks for the priority; a merged body may have its own. For errors.
    priority_field: ClassVar[str] = "priority"

    @model_validator(mode="after")
    def _fields_that_need_another(self) -> GenerationBody:
        if self.truncation_side is not None and self.truncate_prompt_tokens is None:
            raise FieldError(
                "truncation_side",
                "'truncation_side' is only allowed with 'truncate_prompt_tokens'",
            )
        if self.stream_options is not None and not self.stream:
            raise FieldError(
                "stream_options", "'stream_options' is only allowed when 'stream' is true"
            )
        if self.nvext is not None and self.nvext.annotations and not self.stream:
            raise FieldError(
                "nvext.annotations",
                "'nvext.annotations' are only sent in a stream: set 'stream', or use "
                "'nvext.extra_fields'",
            )
        if self.spaces_between_special_tokens and self.skip_special_tokens is False:
            raise FieldError(
                "spaces_between_special_tokens",
                "'spaces_between_special_tokens' is not supported by this server: it adds no "
                "spaces around special tokens",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def shared(self, top_log_probs: int | None) -> dict[str, Any]:
        """The shared fields of a GenerationRequest. An empty list is the same as none given.

        In vLLM's `priority` lower numbers go first, in the engine's higher ones. Continuous usage
        needs no `include_usage`, but false turns it off.
        """
        bias, cut, options = self.logit_bias or {}, self.truncate_prompt_tokens, self.stream_options
        sampling = Sampling(
            temperature=self.temperature,
            top_k=None if self.top_k is None else max(self.top_k, 0),
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=tuple((int(token), value) for token, value in bias.items()) or None,
            allowed_token_ids=tuple(self.allowed_token_ids or ()) or None,
            bad_words=tuple(self.bad_words or ()) or None,
            min_tokens=self.min_tokens or None,
            ignore_eos=self.ignore_eos or None,
            stop_token_ids=tuple(self.stop_token_ids or ()) or None,
            top_log_probs=top_log_probs,
        )
        prompt_limit = None
        if cut is not None:
            keeps_start = self.truncation_side == "right"
            prompt_limit = PromptLimit(tokens=None if cut == -1 else cut, keeps_start=keeps_start)
        return {
            "model": self.model,
            "sampling": sampling,
            "stop": self.stops,
            "includes_stop": bool(self.include_stop_str_in_output),
            "choices": self.n or 1,
            "reports_usage": bool(
                options and options.continuous_usage_stats and options.include_usage is not False
            ),
            "returns_token_ids": bool(self.return_token_ids),
            "skips_special_tokens": self.skip_special_tokens is not False,
            "priority": None if self.priority is None else -self.priority,
            "cache_salt": self.cache_salt,
            "user": self.user,
            "safety_identifier": self.safety_identifier,
            "metadata": self.metadata or {},
            "adds_special_tokens": self.add_special_tokens,
            "prompt_limit": prompt_limit,
            "logs_token_ids": bool(self.return_tokens_as_token_ids),
        }

    def _check_min_tokens(self, most: int | None) -> None:
        if most is not None and (self.min_tokens or 0) > most:
            raise FieldError(
                "min_tokens", f"'min_tokens' is {self.min_tokens}, more than the limit of {most}"
            )

    @property
    def tier(self) -> str | None:
        """The tier that the caller asks for; None for the usual one."""
        return tier_of(self.service_tier)


def tier_of(name: str | None) -> str | None:
    """A service tier by the name that answers have for it; None for the usual one."""
    if name in (None, "auto", "default"):
        return None
    return "priority" if name == "fast" else name


Body = TypeVar("Body", bound=GenerationBody)


def merged(body: Body, words: Mapping[str, int], *, ids_field: str) -> Body:
    """The body with the values of `nvext`, and the priority of `metadata` or `service_tier`, in its
    own fields.

    `greedy_sampling` overrides `temperature`, and `token_data` a prompt that is text: it is the
    same prompt as tokens. A body's lower priorities go first, those of `nvext` and `words` last.

    words: the operator's for priorities. ids_field: the field of the prompt's ids.

    Raises:
        InvalidRequest: two fields give different values for the same thing, or the priority in
            `metadata` is too large.
    """
    update: dict[str, Any] = {}
    priority_field = "priority"
    if (ext := body.nvext) is not None:
        priority = ext.agent_hints.priority if ext.agent_hints else None
        for path, name, value in (
            ("ignore_eos", "ignore_eos", ext.ignore_eos),
            ("top_k", "top_k", ext.top_k),
            ("repetition_penalty", "repetition_penalty", ext.repetition_penalty),
            ("agent_hints.priority", "priority", None if priority is None else -priority),
            ("token_data", ids_field, ext.token_data),
            ("max_thinking_tokens", "thinking_token_budget", ext.max_thinking_tokens),
        ):
            if value is None:
                continue
            own: Any = getattr(body, name)
            is_text = name == "prompt" and (isinstance(own, str) or isinstance(own[0], str))
            if own not in (None, value) and not is_text:
                raise InvalidRequest(
                    f"'{name}' is {echoed(own)}, but 'nvext.{path}' is {echoed(value)}: give one "
                    "of them",
                    param=f"nvext.{path}",
                )
            update[name] = value
        if "priority" in update:
            priority_field = IN_NVEXT
        if ext.greedy_sampling or ext.greed_sampling:
            update["temperature"] = 0.0
    for path, text in (
        (IN_METADATA, (body.metadata or {}).get("priority")),
        ("service_tier", body.tier),
    ):
        if text is None or (meant := _meant(text, words)) is None:
            continue
        own, message = update.get("priority", body.priority), None
        if abs(meant) > INT32_MAX:
            message = (
                f"Invalid value for '{path}': {echoed(text)} is not from "
                f"{-INT32_MAX} to {INT32_MAX}; a note that is not a number is ignored"
            )
        elif own not in (None, meant):
            is_number = str(meant) == text
            shown = text if is_number else f"{echoed(text)}, which is the priority {meant}"
            message = f"'{priority_field}' is {own}, but '{path}' is {shown}: give one of them"
        if message is not None:
            raise InvalidRequest(message, param=path)
        update["priority"], priority_field = meant, path
    if not update:
        return body
    return body.model_copy(update={**update, "priority_field": priority_field})


def _meant(text: str, words: Mapping[str, int]) -> int | None:
    """The priority that a word or an integer in digits stands for; None for any other text."""
    if text in words:
        return -words[text]
    return int(text) if INTEGER.fullmatch(text) else None
