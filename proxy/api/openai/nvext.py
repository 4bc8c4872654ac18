"""`nvext`, NVIDIA's extension of OpenAI's bodies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import (
    INT32_MAX,
    ListOf,
    RequestBody,
    TokenIds,
)
from proxy.api.openai.response_format import FormatBody, GuidedBody
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
