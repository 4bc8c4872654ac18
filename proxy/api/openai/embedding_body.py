"""The body of POST /v1/embeddings, and its answer."""

from __future__ import annotations

import asyncio
import base64
from array import array
from collections.abc import AsyncIterator, Sequence
from secrets import token_hex
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, model_validator

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.completion_body import prompts_of
from proxy.api.openai.field_types import Label, PromptText, RequestBody
from proxy.api.openapi.responses import Answer, ListAnswer
from proxy.domain.output import Usage
from proxy.domain.record import running_record
from proxy.domain.request import GenerationRequest
from proxy.models.registry import ServedModel

MOST_INPUTS = 2_048


def names_of(field: str, count: int) -> dict[str, str]:
    """Field of the prepared request -> the caller's, which has `count` inputs."""
    names = {"embeddings": "model", "scores": "model", "prompt": field, "choices": field}
    return names | {f"prompt[{at}]": f"{field}[{at}]" for at in range(count)}


class EmbeddingsBody(RequestBody):
    model: str = Field(description="A public name or alias.")
    input: Annotated[PromptText, Field(description="A text, texts, token ids, or lists of them.")]
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="Numbers (the default), or base64 of 32-bit floats, little-endian."
    )
    dimensions: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        None, description="Fewer than the model's own, where it was trained for that."
    )
    user: Label | None = Field(None, description="Written to the log.")

    @model_validator(mode="after")
    def _inputs(self) -> EmbeddingsBody:
        given: Any = self.input
        if isinstance(given, str) or isinstance(given[0], int):
            given = [given]
        if len(given) > MOST_INPUTS:
            raise FieldError("input", f"'input' has {len(given)} elements, at most {MOST_INPUTS}")
        if "" in given:
            path = "input" if self.input == "" else f"input[{given.index('')}]"
            raise FieldError(path, f"'{path}' must not be empty")
        return self

    def names(self) -> dict[str, str]:
        """Prepared field -> the caller's."""
        given: Any = self.input
        if isinstance(given, str) or isinstance(given[0], int):
            return names_of("input", 0) | {"prompt[0]": "input"}
        return names_of("input", len(given))

    def to_domain(self, served: ServedModel, caller: str) -> GenerationRequest:
        return GenerationRequest(
            caller=caller,
            id=f"embd-{token_hex(16)}",
            model=served.name,
            fallback_from=served.fallback_from,
            prompt=prompts_of(self.input),
            max_tokens=0,
            embeds=self.dimensions or 0,
            user=self.user,
        )

    async def written(self, vectors: Sequence[bytes], model: str) -> AsyncIterator[bytes]:
        """The answer's JSON, a vector at a time: all of them would hold the event loop."""
        yield b'{"object":"list","data":['
        for index, each in enumerate(vectors):
            is_base64 = self.encoding_format == "base64"
            data = base64.b64encode(each).decode() if is_base64 else array("f", each).tolist()
            item = orjson.dumps({"object": "embedding", "index": index, "embedding": data})
            yield b"," * bool(index) + item
            await asyncio.sleep(0)
        yield b"]," + orjson.dumps({"model": model, "usage": counted_tokens()})[1:]


def counted_tokens() -> dict[str, int]:
    """The usage of an answer without generated tokens."""
    usage = running_record().usage or Usage()
    return {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}


class EmbeddingBody(Answer):
    object: Literal["embedding"]
    index: int = Field(ge=0, description="Of the input.", examples=[0])
    embedding: list[float] | str = Field(examples=[[0.1, -0.2]])


class EmbeddingUsage(Answer):
    prompt_tokens: int = Field(ge=0, examples=[2])
    total_tokens: int = Field(ge=0, examples=[2])


class EmbeddingList(ListAnswer):
    data: list[EmbeddingBody]
    model: str = Field(examples=["demo"])
    usage: EmbeddingUsage
