"""The body of POST /v1/completions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from proxy.api.bodies.validation_errors import FieldError
from proxy.api.openai.requests.field_types import (
    INT32_MAX,
)
from proxy.api.openai.requests.generation_body import GenerationBody
from proxy.api.openai.requests.prompt_body import GivenPromptBody
from proxy.domain.errors import ErrorCode


class CompletionBody(GenerationBody, GivenPromptBody):
    """The body of a completion. `best_of` 0 is the same as none."""

    max_tokens: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    best_of: Annotated[int, Field(ge=0, le=20)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: str | None = None

    @model_validator(mode="after")
    def _best_of_n(self) -> CompletionBody:
        if self.best_of and self.best_of < (self.n or 1):
            raise FieldError("best_of", f"'best_of' is {self.best_of}, less than 'n'")
        if self.best_of and self.best_of > (self.n or 1) and self.stream:
            raise FieldError(
                "best_of",
                "'best_of' cannot be streamed, since the best answers are only known at the end",
            )
        self._check_min_tokens(self.max_tokens)
        return self

    @model_validator(mode="after")
    def _an_answer_of_nothing_is_an_echo(self) -> CompletionBody:
        if self.max_tokens == 0 and not self.echo:
            raise FieldError(
                "max_tokens", "'max_tokens' is 0, which is only allowed when 'echo' is true"
            )
        return self

    @model_validator(mode="after")
    def _a_suffix_is_of_text(self) -> CompletionBody:
        first = self.prompt[0] if self.prompt else ""
        if self.suffix is not None and not isinstance(first, str):
            raise FieldError("suffix", "'suffix' needs a prompt that is text")
        if self.suffix is not None and self.echo:
            raise FieldError("suffix", "'suffix' and 'echo' exclude each other")
        if self.suffix is not None and self.nvext is not None and self.nvext.token_data:
            raise FieldError("suffix", "'suffix' and 'nvext.token_data' exclude each other")
        return self

    @model_validator(mode="after")
    def _an_echo_has_no_format(self) -> CompletionBody:
        if self.echo and self.asked_format is not None:
            field = self.asked_format.field
            raise FieldError("echo", f"'echo' and '{field}' exclude each other")
        return self

    @model_validator(mode="after")
    def _completions_do_not_think(self) -> CompletionBody:
        if self.nvext is not None and self.nvext.max_thinking_tokens is not None:
            raise FieldError(
                "nvext.max_thinking_tokens",
                "'nvext.max_thinking_tokens' is only for chats: a completion has no reasoning",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return self
