"""`nvext`, NVIDIA's extensions of OpenAI's bodies: its fields, and their way into a body."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, model_validator

from triton_openai.proxy.api.bodies.body import FieldError
from triton_openai.proxy.api.openai.requests.fields import INT32_MAX, ListOf, RequestBody, TokenIds
from triton_openai.proxy.api.openai.requests.guided_body import GuidedBody
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest, echoed

AnnotationName = Literal["request_id", "formatted_prompt", "token_ids", "timing"]
ExtraField = Literal["timing", "worker_id"]


class AgentHints(RequestBody):
    """`priority`: a higher one goes first."""

    priority: Annotated[int, Field(ge=-INT32_MAX, le=INT32_MAX)] | None = None


class NvExt(GuidedBody):
    """As Dynamo's and NIM's clients send it. `greed_sampling` is Dynamo's name of the other."""

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


class NvExtBody(RequestBody):
    """A body that has it."""

    nvext: NvExt | None = None


Body = TypeVar("Body", bound=NvExtBody)


def merged(body: Body, *, ids_field: str) -> Body:
    """The body as if nvext's values stood in its own fields. `ids_field`: where prompt ids go.

    Raises:
        InvalidRequest: a field of both has different values.
    """
    if body.nvext is None:
        return body
    update: dict[str, Any] = {}
    for path, name, value in _values(body.nvext, ids_field):
        own = getattr(body, name)
        if own not in (None, value) and not _is_text(name, own):
            raise InvalidRequest(
                f"'{name}' is {echoed(own)}, and '{path}' makes it {echoed(value)}: "
                "give one of them",
                code=ErrorCode.INVALID_PARAMETER,
                param=path,
            )
        update[name] = value
    if body.nvext.is_greedy:
        update["temperature"] = 0.0
    return body.model_copy(update=update)


def _values(ext: NvExt, ids_field: str) -> list[tuple[str, str, Any]]:
    """(path in nvext, the body's own field, its value there): a body's priority is lower first."""
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
    """A prompt's text, which `token_data` is the tokens of."""
    return name == "prompt" and (isinstance(own, str) or isinstance(own[0], str))
