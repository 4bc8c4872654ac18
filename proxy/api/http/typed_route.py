"""The routes of this API: FastAPI describes what their endpoints take, our own readers read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.responses import Response
from starlette.types import Send

from proxy.api.http.body_reader import BodyReader
from proxy.api.http.validation_errors import refusal
from proxy.domain.errors import InvalidRequest

PLAIN = r"^[^\x00-\x1f\x7f]+$"  # no control characters; pydantic refuses lone surrogates


class StrictBody(BaseModel):
    """The base of bodies that refuse unknown fields, and convert no types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class QueryParameters(BaseModel):
    """The base of what routes take in the query, which is checked as bodies are."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TypedRoute(APIRoute):
    """Calls the endpoint with the request's parts that its signature names.

    These are parts of the path, one body, one `QueryParameters`, and the request itself. FastAPI
    would parse a body of any size and depth on the event loop, and answers errors in another form.
    """

    bodies: ClassVar[BodyReader]

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.is_fixed_post = "POST" in (self.methods or ()) and not self.param_convertors
        takes = self.dependant
        self._request_name = takes.request_param_name
        self._bodies: list[tuple[str, Any]] = [
            (one.name, one.field_info.annotation) for one in takes.body_params
        ]
        self._queries: list[tuple[str, Any]] = [
            (one.name, one.field_info.annotation) for one in takes.query_params
        ]

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.answer

    async def answer_post(self, request: Request, send: Send) -> None:
        """Called without FastAPI for a POST to a fixed path."""
        response = await self.answer(request)
        await response(request.scope, request.receive, send)

    async def answer(self, request: Request) -> Response:
        """Raises RequestError: the body or a query parameter is refused."""
        given: dict[str, Any] = dict(request.path_params)
        if self._request_name is not None:
            given[self._request_name] = request
        for name, kind in self._queries:
            given[name] = read_query(request, kind)
        for name, kind in self._bodies:
            given[name] = await self.bodies.read(request, kind)
        response: Response = await self.endpoint(**given)
        return response

    async def call(self, fields: Mapping[str, Any], path: Mapping[str, str]) -> Response:
        """Without HTTP. fields: of the body, or the query. Raises RequestError, as `answer`."""
        given: dict[str, Any] = dict(path)
        for name, kind in (*self._bodies, *self._queries):
            try:
                given[name] = kind.model_validate_json(json.dumps(fields))
            except ValidationError as error:
                raise refusal(error, kind) from error
        response: Response = await self.endpoint(**given)
        return response


def typed_router(
    bodies: BodyReader | None, prefix: str = "", *, tag: str | None = None
) -> APIRouter:
    """A router of TypedRoutes. bodies: None if they are only called. tag: their group in the
    OpenAPI document.
    """
    reading = type("ReadingRoute", (TypedRoute,), {"bodies": bodies})
    return APIRouter(prefix=prefix, tags=None if tag is None else [tag], route_class=reading)


Q = TypeVar("Q", bound=QueryParameters)


def read_query(request: Request, kind: type[Q]) -> Q:
    """Raises InvalidRequest: a parameter is unknown, given twice, or has a wrong value."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise InvalidRequest(
                f"The query parameter {name[:100]!r} is given twice.", param=name[:100]
            )
        given[name] = value
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise refusal(error, kind) from error
