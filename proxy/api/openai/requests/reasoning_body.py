"""The fields of a chat's body that say how the model reasons, and how that is told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from triton_openai.proxy.api.openai.requests.fields import INT32_MAX, RequestBody, only

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
# What happens anyway, in the words of SGLang's and vLLM's clients.
Usual = Annotated[bool, only(True)]


class ReasoningBody(RequestBody):
    """A part of ChatCompletionBody."""

    reasoning_effort: Effort | None = None
    thinking_token_budget: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    include_reasoning: Usual | None = None
    separate_reasoning: Usual | None = None
    stream_reasoning: Usual | None = None
