"""Makes the OpenAPI document from the `Operation`s of the routes. Called by `cached_document`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from triton_openai.proxy.api.openapi import keyed_requests
from triton_openai.proxy.api.openapi.operation import (
    ANY_ROUTE,
    EVENTS,
    JSON,
    KEY,
    Content,
    ErrorBody,
    Operation,
)
from triton_openai.proxy.api.openapi.request_headers import header_parameter
from triton_openai.proxy.api.openapi.response_headers import HEADERS
from triton_openai.proxy.api.route_scopes import NEEDS, RETURN_SECRETS, Open

REF = "#/components/schemas/{model}"
Json = dict[str, Any]
Adjust = Callable[[Json], None]

INFO: Json = {
    "info": {
        "title": "triton-openai",
        "version": "0.1.0",
        "description": "An OpenAI-compatible front for NVIDIA Triton. A field that is `null` is "
        "the same as one that is not given; a field that is not listed here is refused by name.",
    }
}
OF_CALLERS = (401, 403, 503)  # statuses of every route that needs a caller
KEYS: Json = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a JWT."},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "api-key": {"type": "apiKey", "in": "header", "name": "api-key"},
}
RETRY = ("retry-after", "retry-after-ms", "x-should-retry")
ERROR_HEADERS = {
    401: ("www-authenticate",),
    405: ("allow",),
    409: ("x-should-retry",),
    429: RETRY,
    503: RETRY,
    504: ("x-should-retry",),
}
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


def as_json(
    routers: Iterable[APIRouter], adjust: Iterable[Adjust], *, needs_keys: bool = False
) -> bytes:
    """The whole document, which takes tens of milliseconds.

    `adjust`: functions that change the schemas in place; they get them by name. `needs_keys`:
    whether callers are authenticated.
    """
    routes = [route for router in routers for route in router.routes]
    documented = [one for one in routes if isinstance(one, APIRoute) and one.include_in_schema]
    paths: Json = {}
    for route in documented:
        for method in sorted(route.methods or ()):
            paths.setdefault(route.path_format, {})[method.lower()] = _operation(
                route, method, needs_keys
            )
    schemas = _schemas(_spec(route) for route in documented)
    for change in adjust:
        change(schemas)
    components = {"schemas": schemas, "headers": HEADERS}
    components["parameters"] = keyed_requests.PARAMETERS
    if needs_keys:
        components["securitySchemes"] = KEYS
    return orjson.dumps({"openapi": "3.1.0", **INFO, "paths": paths, "components": components})


def _spec(route: APIRoute) -> Operation:
    spec = (route.openapi_extra or {}).get(KEY)
    assert isinstance(spec, Operation), f"{route.path} has no Operation in its openapi_extra"
    return spec


def _operation(route: APIRoute, method: str, needs_keys: bool) -> Json:
    spec, is_open = _spec(route), NEEDS.get(route.path) is Open.ANYBODY
    more = () if is_open else OF_CALLERS
    is_keyed = method == "POST" and not route.path.startswith(RETURN_SECRETS)
    made: Json = {
        "tags": [spec.tag],
        "summary": route.name.replace("_", " ").capitalize(),
        "description": inspect.getdoc(route.endpoint) or "",
        "operationId": f"{spec.tag}_{route.name}{'_at_health' * route.path.endswith('/health')}",
        "responses": {
            "200": _success(spec, is_keyed),
            **_errors(spec, (*more, *(keyed_requests.ERRORS if is_keyed else ()))),
        },
    }
    if needs_keys and not is_open:
        made["security"] = [{name: []} for name in KEYS]
    names = [one.alias for one in route.dependant.path_params]
    parameters = [_parameter(name, spec.path_parameters[name]) for name in names]
    parameters += map(header_parameter, spec.takes_headers)
    if spec.query is not None:
        parameters += _query_parameters(spec.query)
    if is_keyed:
        parameters += keyed_requests.REFERENCES
    if parameters:
        made["parameters"] = parameters
    if spec.takes is not None:
        examples = {name: {"value": value} for name, value in spec.requests.items()}
        content = {"schema": _reference(spec.takes), "examples": examples}
        made["requestBody"] = {"required": True, "content": {JSON: content}}
    return made


def _parameter(name: str, words: str) -> Json:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": words, "schema": schema}


def _query_parameters(model: type[BaseModel]) -> Iterator[Json]:
    """Optional ones, of simple types. A query has no null: the parameter is left out instead."""
    for name, schema in model.model_json_schema(schema_generator=_Bare)["properties"].items():
        words = schema.pop("description", "")
        (schema,) = [one for one in schema.pop("anyOf", [schema]) if one != {"type": "null"}]
        yield {"name": name, "in": "query", "description": words, "schema": schema}


def _success(spec: Operation, is_keyed: bool) -> Json:
    content = {media: _content(media, one) for media, one in spec.gives.items()}
    headers = _headers(*spec.headers, *(keyed_requests.HEADERS if is_keyed else ()))
    return {"description": "Successful answer", "headers": headers, "content": content}


def _content(media: str, content: Content) -> Json:
    if content.body is None:
        return {"schema": {"type": "string"}, "example": content.example}
    if content.is_lines:
        return {"x-line-schema": _reference(content.body), "example": content.example}
    if media == EVENTS:
        return {"schema": _event(content.body), "example": content.example}
    return {"schema": _reference(content.body), "example": content.example}


def _event(body: type[BaseModel]) -> Json:
    """The schema of one server-sent event, as tools understand it for this media type."""
    values = [_reference(body), _reference(ErrorBody)]
    data = [
        {"const": "[DONE]", "description": "The end of the stream."},
        {"contentMediaType": JSON, "contentSchema": {"anyOf": values}},
    ]
    properties = {"event": {"type": "string"}, "data": {"type": "string", "anyOf": data}}
    words = "An error after the first token is an event, too."
    return {"type": "object", "required": ["data"], "properties": properties, "description": words}


def _errors(spec: Operation, more: tuple[int, ...]) -> Json:
    made = {}
    for status in sorted({*ANY_ROUTE, *spec.errors, *more}):
        words = ERRORS[status]
        made[str(status)] = {
            "description": f"{HTTPStatus(status).phrase}: {words}",
            "headers": _headers(*ERROR_HEADERS.get(status, ())),
            "content": {JSON: {"schema": _reference(ErrorBody)}},
        }
    return made


def _headers(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("x-request-id", *names)}


def _reference(model: type[BaseModel]) -> Json:
    return {"$ref": REF.format(model=model.__name__)}


class _Bare(GenerateJsonSchema):
    """Generates pydantic's schemas without titles and null defaults, which carry no information."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        if made.get("default", ...) is None:
            del made["default"]
        return made


def _schemas(specs: Iterable[Operation]) -> Json:
    models = {model for spec in specs for model in spec.models} | {ErrorBody}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, made = models_json_schema(
        [(model, "validation") for model in ordered],
        ref_template=REF,
        schema_generator=_Bare,
    )
    schemas: Json = made["$defs"]
    for schema in schemas.values():
        schema.pop("title", None)
        _correct(schema)
    return dict(sorted(schemas.items()))


def _correct(schema: Any) -> None:
    """Corrects what pydantic writes for a dict: its size, and the pattern of its keys."""
    if isinstance(schema, list):
        for one in schema:
            _correct(one)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object":
        if "maxLength" in schema:
            schema["maxProperties"] = schema.pop("maxLength")
        if "patternProperties" in schema:
            ((pattern, values),) = schema.pop("patternProperties").items()
            schema |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    for one in schema.values():
        _correct(one)
