"""The body of POST /v1/completions."""

from __future__ import annotations

from secrets import token_hex
from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic.config import JsonDict

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import INT32_MAX, PromptText, RequestBody
from proxy.api.openai.generation_body import GenerationBody
from proxy.domain.errors import ErrorCode
from proxy.domain.model import ModelCard
from proxy.domain.request import (
    GenerationRequest,
    Prompt,
    PromptBatch,
    TextPrompt,
    TokenPrompt,
)
from proxy.domain.request_limits import smaller

DEFAULT_TOKENS = 16  # from OpenAI's specification


def _or_null(schema: JsonDict) -> None:
    kinds = schema.pop("oneOf", None) or schema.pop("anyOf")
    schema["anyOf"] = [*kinds, {"type": "null"}] if isinstance(kinds, list) else kinds


class PromptBody(RequestBody):
    """A base of its own, so that a missing prompt is the first error."""

    prompt: Annotated[PromptText, Field(json_schema_extra=_or_null)]


class CompletionBody(GenerationBody, PromptBody):
    """The body of a completion. `best_of` 0 is the same as none."""

    max_tokens: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    best_of: Annotated[int, Field(ge=0, le=20)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_an_empty_prompt(cls, given: Any) -> Any:
        """Null is an empty prompt, by OpenAI's specification; an absent prompt is an error."""
        if isinstance(given, dict) and "prompt" in given and given["prompt"] is None:
            return {**given, "prompt": ""}
        return given

    @model_validator(mode="after")
    def _rules(self) -> CompletionBody:
        """Checks the rules between fields; the first broken rule is the error."""
        if self.best_of and self.best_of < (self.n or 1):
            raise FieldError("best_of", f"'best_of' is {self.best_of}, less than 'n'")
        if self.best_of and self.best_of > (self.n or 1) and self.stream:
            raise FieldError(
                "best_of",
                "'best_of' cannot be streamed, since the best answers are only known at the end",
            )
        self._check_min_tokens(self.max_tokens)
        if self.max_tokens == 0 and not self.echo:
            raise FieldError(
                "max_tokens", "'max_tokens' is 0, which is only allowed when 'echo' is true"
            )
        first = self.prompt[0] if self.prompt else ""
        if self.suffix is not None and not isinstance(first, str):
            raise FieldError("suffix", "'suffix' needs a prompt that is text")
        if self.suffix is not None and self.echo:
            raise FieldError("suffix", "'suffix' and 'echo' exclude each other")
        if self.suffix is not None and self.nvext is not None and self.nvext.token_data:
            raise FieldError("suffix", "'suffix' and 'nvext.token_data' exclude each other")
        if self.echo and self.asked_format is not None:
            field = self.asked_format.field
            raise FieldError("echo", f"'echo' and '{field}' exclude each other")
        if self.nvext is not None and self.nvext.max_thinking_tokens is not None:
            raise FieldError(
                "nvext.max_thinking_tokens",
                "'nvext.max_thinking_tokens' is only for chats: a completion has no reasoning",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return self

    def to_domain(self, caller: str, card: ModelCard) -> GenerationRequest:
        """`card`: the card of the model that the body names."""
        return GenerationRequest(
            caller=caller,
            id=f"cmpl-{token_hex(16)}",
            prompt=prompts_of(self.prompt, self.suffix),
            max_tokens=self._token_limit(card),
            best_of=self.best_of,
            echoes_prompt=bool(self.echo),
            **self.shared(self.logprobs),
        )

    def _token_limit(self, card: ModelCard) -> int | None:
        """None lets the tokenizer apply the model's default, cut to what the context has left."""
        if self.max_tokens is not None or card.facts.default_max_tokens is not None:
            return self.max_tokens
        if "max_tokens" not in card.capabilities:
            return None
        return smaller(max(DEFAULT_TOKENS, self.min_tokens or 0), card.limits.max_tokens)


def prompts_of(given: Any, suffix: str | None = None) -> Prompt:
    """given: a value of PromptText."""
    if isinstance(given, str) or isinstance(given[0], int):
        return _one_prompt(given, suffix)
    return PromptBatch(prompts=tuple(_one_prompt(one, suffix) for one in given))


def _one_prompt(given: Any, suffix: str | None) -> TextPrompt | TokenPrompt:
    if isinstance(given, str):
        return TextPrompt(text=given, suffix=suffix)
    return TokenPrompt(ids=tuple(given))
