"""What routes declare of their answers for the OpenAPI document: FastAPI's `responses`.

Answers are not validated against these models at run time. `document` adds what all routes have.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from typing import Any, Literal

from fastapi.openapi.models import Example
from pydantic import BaseModel, ConfigDict, Field

Json = dict[str, Any]
Responses = dict[int | str, Json]
JSON, EVENTS, CSV = "application/json", "text/event-stream", "text/csv"
# Statuses of a body that is read and checked, and of what is done with it.
BODY = (400, 408, 413, 415, 429, 503)
GENERATION = (*BODY, 422, 504)
ERRORS = {
    400: "The body is not valid JSON, a field is missing, unknown or has a wrong value, or the "
    "model cannot do what the request asks for",
    401: "No API key was sent, or one that is not accepted",
    403: "The API key does not allow this route or this model",
    404: "No such route, or no such model",
    405: "The route has no such method",
    408: "The body was not complete in time",
    409: "The change does not fit what is stored, or the Idempotency-Key is another body's",
    410: "The stream that Last-Event-ID continues is not kept",
    413: "The body is too large",
    414: "The request's target is too long",
    415: "The body is compressed, or a web page sent it with another type than JSON",
    421: "The Host header is not a name of this server",
    422: "A schema, a grammar or a regular expression cannot be used, or the answer does not "
    "conform to it",
    429: "Too many requests at once",
    431: "The request's head is too large",
    500: "The server failed",
    503: "The model cannot be reached now",
    504: "The answer took too long",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A header of answers.

    of: the statuses that have it, or the kinds of answers: "every answer", "generation", "key" (of
    requests with an Idempotency-Key), "limits" (of callers with limits), or a protocol's prefix.
    is_exposed: pages of other origins may read it (CORS).
    """

    of: list[str]
    description: str
    schema: Json
    is_exposed: bool = True


# What the document has besides paths and schemas. Its headers are all that answers have of ours.
COMPONENTS: Json = json.loads((resources.files(__package__) / "components.json").read_bytes())
HEADERS = {name: Header(**row) for name, row in COMPONENTS["headers"].items()}
COMPONENTS["headers"] = {
    name: {"description": each.description, "schema": each.schema} for name, each in HEADERS.items()
}


class Answer(BaseModel):
    """The base of models that describe answers, which have no other fields."""

    model_config = ConfigDict(extra="forbid")


class ListAnswer(Answer):
    object: Literal["list"]


class PageAnswer(ListAnswer):
    has_more: bool = Field(description="Whether more follow: ask again with `after`.")


class ErrorDetail(Answer):
    """`type`: see domain.errors.ErrorType."""

    message: str = Field(description="What is wrong, with which value, and what to do.")
    type: str = Field(description="Class of the error.")
    param: str | None = Field(description="Path of the field that caused the error.")
    code: str | None = Field(description="Kind of the error, for programs.")


class ErrorBody(Answer):
    """The body of every error, as `errors.body_of` makes it."""

    error: ErrorDetail


def answers(
    model: type[BaseModel] | None,
    *refusals: int,
    generates: bool = False,
    content: Json | None = None,
) -> Responses:
    """The `responses` of a route.

    model: of the JSON answer. refusals: statuses besides those that `document` adds to all routes.
    content: answers of other media types.
    """
    headers = header_references("generation" if generates else "")
    success: Json = {"description": "Successful answer", "headers": headers}
    if content is not None:
        success["content"] = content
    if model is not None:
        success["model"] = model
    return {200: success, **{status: error_response(status) for status in refusals}}


def text(example: str) -> Json:
    """The content of an answer that is plain text."""
    return {"schema": {"type": "string"}, "example": example}


_EXAMPLES: Json = json.loads((resources.files(__package__) / "examples.json").read_bytes())


def requests(name: str) -> dict[str, Example]:
    """The examples of requests with this name in examples.json. Tests send each to a server."""
    return {each: {"value": body} for each, body in _EXAMPLES["requests"][name].items()}


def stream(name: str) -> list[Json]:
    """The example of a stream's payloads with this name in examples.json."""
    found: list[Json] = _EXAMPLES["streams"][name]
    return found


def events(model: type[BaseModel], payloads: Sequence[Json]) -> Json:
    """The content of a stream of server-sent events; model: of one event's data."""
    lines = (*map(json.dumps, payloads), "[DONE]")
    data = [
        DONE,
        {
            "contentMediaType": JSON,
            "contentSchema": {"anyOf": [reference(model), reference(ErrorBody)]},
        },
    ]
    schema = {
        "type": "object",
        "required": ["data"],
        "properties": {"event": {"type": "string"}, "data": {"type": "string", "anyOf": data}},
        "description": "An error after the first token is an event, too.",
    }
    return {"schema": schema, "example": "".join(f"data: {line}\n\n" for line in lines)}


DONE = {"const": "[DONE]", "description": "The end of the stream."}


def named_events(
    model: type[BaseModel],
    error: type[BaseModel],
    payloads: Sequence[Json],
    *,
    has_end: bool = False,
) -> Json:
    """The content of a stream whose events have the name of their `type`; model: as of `events`.

    has_end: `[DONE]` follows, without a name.
    """
    either = {"anyOf": [reference(model), reference(error)]}
    payload = {"contentMediaType": JSON, "contentSchema": either}
    data = {"type": "string", **({"anyOf": [DONE, payload]} if has_end else payload)}
    names = {"type": "string", "description": "The `type` of the data."}
    schema = {
        "type": "object",
        "required": ["data"] if has_end else ["event", "data"],
        "properties": {"event": names, "data": data},
        "description": "The event `error` has the body of an error, and ends the stream.",
    }
    lines = (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in payloads)
    end = "data: [DONE]\n\n" if has_end else ""
    return {"schema": schema, "example": "".join(lines) + end}


def error_response(status: int) -> Json:
    return {
        "description": f"{HTTPStatus(status).phrase}: {ERRORS[status]}",
        "headers": header_references(str(status)),
        "content": {JSON: {"schema": reference(ErrorBody)}},
    }


def header_references(of: str) -> Json:
    """of: as in Header. The headers of every answer are always included."""
    return {
        name: {"$ref": f"#/components/headers/{name}"}
        for name, each in HEADERS.items()
        if of in each.of or "every answer" in each.of
    }


def reference(model: type[BaseModel]) -> Json:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
