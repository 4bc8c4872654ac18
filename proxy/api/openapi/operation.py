"""The description of one route for the OpenAPI document, besides path, method and docstring.

Routes put an Operation into `openapi_extra`, where `document` reads it. Requests do not use it:
routes read bodies with a BodyReader and render answers themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

JSON, EVENTS, TEXT = "application/json", "text/event-stream", "text/plain"
CSV = "text/csv"
KEY = "operation"
# Statuses of all routes: no such route or model, wrong method, unknown host, a bug.
ANY_ROUTE = (404, 405, 414, 421, 431, 500)
# Those of a body that is read and checked, and of what is done with it.
BODY = (400, 408, 413, 415, 429, 503)
GENERATION = (*BODY, 422, 504)
GENERATION_HEADERS = (
    *("x-resends", "x-continued", "x-queue-position", "x-queue-wait"),
    *("x-fallback-from", "deprecation", "sunset", "link"),
)
GENERATION_TAKES = ("x-queue-timeout-ms",)


class ErrorDetail(BaseModel):
    """`type`: see domain.errors.ErrorType."""

    model_config = ConfigDict(extra="forbid")

    message: str = Field(description="What is wrong, with which value, and what to do.")
    type: str = Field(description="Class of the error.")
    param: str | None = Field(description="Path of the field that caused the error.")
    code: str | None = Field(description="Kind of the error, for programs.")


class ErrorBody(BaseModel):
    """The body of every error, as `errors.body_of` makes it."""

    model_config = ConfigDict(extra="forbid")

    error: ErrorDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A successful answer in one media type.

    body: the model of the whole answer, of an event's data, or of a line; None for plain text.
    is_lines: the answer is lines of JSON, which OpenAPI cannot describe.
    """

    body: type[BaseModel] | None
    example: Any
    is_lines: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A route's description.

    gives: the successful answer in each media type. takes: the model of the body. requests:
    examples of bodies by name. errors: statuses besides ANY_ROUTE. headers: names of the answer's
    headers. takes_headers: of the request, from request_headers. path_parameters: what they are, by
    name. query: the model of the query parameters.
    """

    tag: str
    gives: Mapping[str, Content]
    takes: type[BaseModel] | None = None
    requests: Mapping[str, Any] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    headers: tuple[str, ...] = ()
    takes_headers: tuple[str, ...] = ()
    path_parameters: Mapping[str, str] = field(
        default_factory=lambda: {
            "model": "A model's public name, or an alias, as `/v1/models` lists it."
        }
    )
    query: type[BaseModel] | None = None

    @property
    def extra(self) -> dict[str, Any]:
        """The value for a route's `openapi_extra`."""
        return {KEY: self}

    @property
    def models(self) -> set[type[BaseModel]]:
        given = {content.body for content in self.gives.values() if content.body is not None}
        return given if self.takes is None else given | {self.takes}
