"""The bodies of POST /v1/rerank and /v1/score, and their answers.

As vLLM serves them (vllm/entrypoints/pooling/scoring at 004706d8); /v1/rerank is Jina's, too.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Sequence
from secrets import token_hex
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from proxy.access.request_size import COPIED_BYTES, exceed
from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.embedding_body import (
    MOST_INPUTS,
    EmbeddingUsage,
    counted_tokens,
    names_of,
)
from proxy.api.openai.field_types import Label, ListOf, RequestBody, text_or_list
from proxy.api.openapi.responses import Answer, ListAnswer
from proxy.domain.record import running_record
from proxy.domain.request import GenerationRequest, PromptBatch, TextPrompt
from proxy.models.registry import ServedModel

GivenText = Annotated[str, Field(min_length=1)]


class DocumentBody(BaseModel):
    """Its other fields are the caller's own, and come back with it."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    text: GivenText


Document = Annotated[
    Annotated[GivenText, Tag("<text>")] | Annotated[DocumentBody, Tag("<object>")],
    Discriminator(lambda value: "<text>" if isinstance(value, str) else "<object>"),
]
GivenTexts = Annotated[
    Annotated[GivenText, Tag("<text>")]
    | Annotated[ListOf[GivenText], Tag("<list>"), Field(min_length=1, max_length=MOST_INPUTS)],
    Discriminator(text_or_list),
]


class RerankBody(RequestBody):
    model: str = Field(description="A public name or alias.")
    query: GivenText = Field(description="What the documents are compared with.")
    documents: Annotated[ListOf[Document], Field(min_length=1, max_length=MOST_INPUTS)] = Field(
        description="Texts, or objects with a `text`."
    )
    top_n: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Return only the best so many; 0: all, the default."
    )
    return_documents: bool = Field(True, description="Whether results have the documents.")
    user: Label | None = Field(None, description="Written to the log.")

    @model_validator(mode="after")
    def _is_bounded(self) -> RerankBody:
        _check_copies("query", [self.query], "documents", len(self.documents))
        return self

    def names(self) -> dict[str, str]:
        """Prepared field -> the caller's."""
        return names_of("documents", len(self.documents))

    def to_domain(self, served: ServedModel, caller: str) -> GenerationRequest:
        pairs = [(self.query, text) for text in self._texts()]
        return _request("rerank", served, caller, pairs, self.user)

    def _texts(self) -> list[str]:
        return [one if isinstance(one, str) else one.text for one in self.documents]

    async def written(self, scores: Sequence[bytes], model: str) -> AsyncIterator[bytes]:
        """The answer's JSON, the best document first, a result at a time."""
        found = _numbers(scores)
        ranked = sorted(range(len(found)), key=found.__getitem__, reverse=True)
        head = {"id": running_record().id, "model": model, "usage": counted_tokens()}
        yield orjson.dumps(head)[:-1] + b',"results":['
        for place, at in enumerate(ranked[: self.top_n or None]):
            result: dict[str, Any] = {"index": at, "relevance_score": found[at]}
            if self.return_documents:
                one = self.documents[at]
                result["document"] = {"text": one} if isinstance(one, str) else one.model_dump()
            yield b"," * bool(place) + orjson.dumps(result)
            await asyncio.sleep(0)
        yield b"]}"


class ScoreBody(RequestBody):
    model: str = Field(description="A public name or alias.")
    text_1: GivenTexts | None = Field(None, description="A text, or as many as in text_2.")
    text_2: GivenTexts | None = Field(None, description="A text, or texts.")
    queries: GivenTexts | None = Field(None, description="Another name of text_1.")
    documents: GivenTexts | None = Field(None, description="Another name of text_2.")
    user: Label | None = Field(None, description="Written to the log.")

    @model_validator(mode="after")
    def _pairs_up(self) -> ScoreBody:
        for first, second in (("queries", "documents"), ("text_1", "text_2")):
            given = [name for name in (first, second) if getattr(self, name) is not None]
            if given and given != [first, second]:
                missing = second if given == [first] else first
                raise FieldError(missing, f"'{given[0]}' needs '{missing}'")
        if (self.queries is None) == (self.text_1 is None):
            raise FieldError("text_1", "give 'text_1' and 'text_2', or 'queries' and 'documents'")
        one, other = map(len, self._sides())
        if one not in (1, other):
            raise FieldError(self._field(0), f"has {one} texts to {other}: give one, or as many")
        _check_copies(self._field(0), self._sides()[0], self._field(1), other)
        return self

    def names(self) -> dict[str, str]:
        """Prepared field -> the caller's."""
        return names_of(self._field(1), len(self._sides()[1]))

    def to_domain(self, served: ServedModel, caller: str) -> GenerationRequest:
        firsts, seconds = self._sides()
        firsts = firsts * len(seconds) if len(firsts) == 1 else firsts
        pairs = list(zip(firsts, seconds, strict=True))
        return _request("score", served, caller, pairs, self.user)

    def _field(self, side: int) -> str:
        return (("text_1", "text_2") if self.queries is None else ("queries", "documents"))[side]

    def _sides(self) -> tuple[list[str], list[str]]:
        first, second = (getattr(self, self._field(side)) for side in (0, 1))
        return _list(first), _list(second)

    async def written(self, scores: Sequence[bytes], model: str) -> AsyncIterator[bytes]:
        """The answer's JSON."""
        rows = [
            {"index": at, "object": "score", "score": score}
            for at, score in enumerate(_numbers(scores))
        ]
        yield orjson.dumps(
            {
                "id": running_record().id,
                "object": "list",
                "created": int(time.time()),
                "model": model,
                "data": rows,
                "usage": counted_tokens(),
            }
        )


class RerankedDocument(Answer):
    """With all fields that the caller gave it."""

    model_config = ConfigDict(extra="allow")

    text: str


class RerankResult(Answer):
    index: int = Field(ge=0, description="Of the document.", examples=[1])
    relevance_score: float = Field(examples=[0.83])
    document: RerankedDocument | None = None


class RerankAnswer(Answer):
    id: str = Field(examples=["rerank-4f1d"])
    model: str = Field(examples=["demo-embedding"])
    usage: EmbeddingUsage
    results: list[RerankResult]


class Score(Answer):
    index: int = Field(ge=0, description="Of the pair.", examples=[0])
    object: Literal["score"]
    score: float = Field(examples=[0.83])


class ScoreAnswer(ListAnswer):
    id: str = Field(examples=["score-4f1d"])
    created: int
    model: str = Field(examples=["demo-embedding"])
    data: list[Score]
    usage: EmbeddingUsage


def _request(
    kind: str, served: ServedModel, caller: str, pairs: Sequence[tuple[str, str]], user: str | None
) -> GenerationRequest:
    prompts = tuple(TextPrompt(text=first, pair=second) for first, second in pairs)
    return GenerationRequest(
        caller=caller,
        id=f"{kind}-{token_hex(16)}",
        model=served.name,
        fallback_from=served.fallback_from,
        prompt=PromptBatch(prompts=prompts),
        max_tokens=0,
        embeds=0,
        user=user,
    )


def _check_copies(field: str, texts: list[str], of: str, count: int) -> None:
    """Raises FieldError: one text, sent with each of the others, is too large altogether."""
    if len(texts) == 1 and exceed(COPIED_BYTES, [(texts[0], count)]):
        raise FieldError(
            of,
            f"'{field}' is sent with each of the {count} texts of '{of}', and at most "
            f"{COPIED_BYTES} bytes are allowed: send a shorter one, or fewer texts",
        )


def _list(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _numbers(scores: Sequence[bytes]) -> list[float]:
    return [struct.unpack("<f", each)[0] for each in scores]
