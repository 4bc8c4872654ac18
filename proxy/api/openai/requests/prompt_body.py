"""The fields of a body about tokens: how its prompt is tokenized, how answers name tokens."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic.config import JsonDict

from proxy.api.bodies.validation_errors import FieldError
from proxy.api.openai.requests.field_types import INT32_MAX, PromptText, RequestBody
from proxy.domain.request import PromptLimit


def _not_zero(tokens: int) -> int:
    if tokens == 0:
        raise ValueError("must be 1 or more, or -1 for as many as fit")
    return tokens


class PromptBody(RequestBody):
    """The fields that chat completions and completions share."""

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

    @model_validator(mode="after")
    def _a_side_needs_a_limit(self) -> PromptBody:
        if self.truncation_side is not None and self.truncate_prompt_tokens is None:
            raise FieldError(
                "truncation_side",
                "'truncation_side' is only allowed with 'truncate_prompt_tokens'",
            )
        return self

    def prompt_fields(self) -> dict[str, Any]:
        """Fields of a GenerationRequest."""
        return {
            "adds_special_tokens": self.add_special_tokens,
            "prompt_limit": self._prompt_limit,
            "logs_token_ids": bool(self.return_tokens_as_token_ids),
        }

    @property
    def _prompt_limit(self) -> PromptLimit | None:
        if self.truncate_prompt_tokens is None:
            return None
        return PromptLimit(
            tokens=None if self.truncate_prompt_tokens == -1 else self.truncate_prompt_tokens,
            keeps_start=self.truncation_side == "right",
        )


def _or_null(schema: JsonDict) -> None:
    kinds = schema.pop("oneOf", None) or schema.pop("anyOf")
    schema["anyOf"] = [*kinds, {"type": "null"}] if isinstance(kinds, list) else kinds


class GivenPromptBody(RequestBody):
    """The field `prompt`, for CompletionBody."""

    prompt: Annotated[PromptText, Field(json_schema_extra=_or_null)]

    @model_validator(mode="before")
    @classmethod
    def _null_is_an_empty_prompt(cls, given: Any) -> Any:
        """Null is an empty prompt, by OpenAI's specification; an absent prompt is an error."""
        if isinstance(given, dict) and "prompt" in given and given["prompt"] is None:
            return {**given, "prompt": ""}
        return given
