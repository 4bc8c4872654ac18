"""`nvext`, NVIDIA's extension of OpenAI's bodies: its fields, and how they merge into a body."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import (
    INT32_MAX,
    ListOf,
    RequestBody,
    TokenIds,
)
from proxy.api.openai.response_format import FormatBody, GuidedBody
from proxy.domain.errors import ErrorCode, InvalidRequest, echoed
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

    @property
    def is_greedy(self) -> bool:
        return bool(self.greedy_sampling or self.greed_sampling)


class NvExtBody(FormatBody):
    """A body with the field `nvext`."""

    nvext: NvExt | None = None

    def _guides(self) -> list[ConstraintRequest]:
        """The body's own guides, and those of `nvext` that differ from them."""
        own = self.guided()
        known = [(one.form, one.value) for one in own]
        extra = self.nvext.guided("nvext.") if self.nvext else []
        return own + [one for one in extra if (one.form, one.value) not in known]


def values(body: NvExtBody, ext: NvExt, ids_field: str) -> dict[str, Any]:
    """What nvext says of the body's own fields. ids_field: the field of the prompt's ids.

    `greedy_sampling` overrides `temperature`, and `token_data` a prompt that is text.

    Raises:
        InvalidRequest: nvext and the body give different values for the same thing.
    """
    update: dict[str, Any] = {}
    for path, name, value in _values(ext, ids_field):
        own = getattr(body, name)
        if own not in (None, value) and not _is_text(name, own):
            raise InvalidRequest(
                f"'{name}' is {echoed(own)}, but '{path}' is {echoed(value)}: give one of them",
                code=ErrorCode.INVALID_PARAMETER,
                param=path,
            )
        update[name] = value
    if ext.is_greedy:
        update["temperature"] = 0.0
    return update


def _values(ext: NvExt, ids_field: str) -> list[tuple[str, str, Any]]:
    """(path in nvext, the body's own field, its value); a body's lower priorities go first."""
    priority = ext.agent_hints.priority if ext.agent_hints else None
    found = [
        ("nvext.ignore_eos", "ignore_eos", ext.ignore_eos),
        ("nvext.top_k", "top_k", ext.top_k),
        ("nvext.repetition_penalty", "repetition_penalty", ext.repetition_penalty),
        ("nvext.agent_hints.priority", "priority", None if priority is None else -priority),
        ("nvext.token_data", ids_field, ext.token_data),
        ("nvext.max_thinking_tokens", "thinking_token_budget", ext.max_thinking_tokens),
    ]
    return [(path, name, value) for path, name, value in found if value is not None]


def _is_text(name: str, own: Any) -> bool:
    """Whether it is a prompt's text: `token_data` is then the same prompt as tokens."""
    return name == "prompt" and (isinstance(own, str) or isinstance(own[0], str))
