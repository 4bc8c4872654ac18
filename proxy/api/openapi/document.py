"""The OpenAPI document: what FastAPI generates from the routes, and what FastAPI cannot know.

That is what the layers around the routes add to each of them, limits of settings and models, and
examples composed of those of single fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import orjson
from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from proxy import __version__
from proxy.api.http.route_scopes import UNKEYED, RouteScopes
from proxy.api.manifest import Open
from proxy.api.openai.field_types import whole
from proxy.api.openai.request_builder import FieldLimits
from proxy.api.openapi.responses import (
    COMPONENTS,
    JSON,
    ErrorBody,
    Json,
    error_response,
    header_references,
    reference,
)
from proxy.api.protocols import PROTOCOLS, errors_at
from proxy.domain.model import ModelCard
from proxy.models.registry import Registry

NAME = "triton-openai"
DESCRIPTION = (
    "An OpenAI-compatible front for NVIDIA Triton. A field that is `null` is the same as one that "
    "is not given; a field that is not listed here is refused by name."
)
SCHEMAS = "#/components/schemas/"
# Models that no route declares to FastAPI: it takes none for the events of a stream.
UNDECLARED: Sequence[type[BaseModel]] = [
    ErrorBody,
    *(model for each in PROTOCOLS for model in each.events),
]
BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
INT64_MAX = 2**63 - 1  # FastAPI makes bounds floats, which round it up
OF_ALL = (404, 405, 414, 421, 431, 500)  # no such route or model, wrong method or host, a bug
OF_CALLERS = (401, 403, 503)  # of routes that need a caller
OF_KEYED = (409, 410, 429, 503)  # of POST routes, which take an Idempotency-Key


def cached_document(
    routers: Sequence[APIRouter],
    limits: FieldLimits,
    registry: Registry,
    scopes: RouteScopes | None,
) -> Callable[[], bytes]:
    """Returns a function that gives the document as JSON; it makes it anew when models change.

    routers: may become more until the first call. scopes: None where callers are not authenticated.
    """

    @cache
    def of_routes() -> bytes:
        return orjson.dumps(document(routers, scopes))

    @lru_cache(maxsize=1)
    def made(sizes: ModelSizes | None) -> bytes:
        found = orjson.loads(of_routes())
        schemas = found["components"]["schemas"]
        _describe(schemas)
        add_bounds(schemas, limits, sizes)
        return orjson.dumps(found)

    return lambda: made(model_sizes(registry.cards()))


def document(routers: Sequence[APIRouter], scopes: RouteScopes | None) -> Json:
    """The document without limits of OpenAI's bodies.

    It takes tenths of a second, in steps of a few milliseconds: FastAPI checks each document that
    it makes in one step, which holds up all threads. So it makes one of each router.
    """
    _, undeclared = models_json_schema(
        [(model, "validation") for model in UNDECLARED], ref_template=SCHEMAS + "{model}"
    )
    schemas: Json = undeclared["$defs"]
    made: Json = {"paths": {}}
    for each in routers:
        found = get_openapi(
            title=NAME,
            version=__version__,
            description=DESCRIPTION,
            routes=each.routes,
            separate_input_output_schemas=False,
        )
        schemas |= found.pop("components", {}).get("schemas", {})
        for path, operations in found.pop("paths").items():
            made["paths"].setdefault(path, {}).update(operations)
        made |= found
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which we never send
        schemas.pop(name, None)
    _correct([made["paths"], schemas])
    made["components"] = {"schemas": dict(sorted(schemas.items())), **COMPONENTS}
    keys = made["components"]["securitySchemes"]
    if scopes is None:
        del made["components"]["securitySchemes"]
    for path, operations in made["paths"].items():
        is_open = (scopes or RouteScopes()).at(path).need is Open.ANYBODY
        for method, operation in operations.items():
            is_keyed = method == "post" and not path.startswith(tuple(UNKEYED))
            _add_layers(operation, is_open=is_open, is_keyed=is_keyed)
            if (form := errors_at(path)) is not None:
                for status, response in operation["responses"].items():
                    response["headers"] |= header_references(form.prefix)
                    if int(status) >= 400:
                        response["content"] = {JSON: {"schema": reference(form.model)}}
            if scopes is not None and not is_open:
                operation["security"] = [{name: []} for name in keys]
            _add_examples(operation, schemas)
    return made


def _add_layers(operation: Json, *, is_open: bool, is_keyed: bool) -> None:
    """What the layers of ASGI answer, and take, in the route's place."""
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    more = (*OF_ALL, *(() if is_open else OF_CALLERS), *(OF_KEYED if is_keyed else ()))
    for status in more:
        responses.setdefault(str(status), error_response(status))
    operation["responses"] = dict(sorted(responses.items()))
    operation["summary"] = operation["summary"].capitalize()
    parameters = operation.get("parameters", [])
    for one in parameters:  # a query has no null: the parameter is left out instead
        if one["in"] == "query":
            (one["schema"],) = _without_null(one["schema"])
    if is_keyed:
        references = (
            {"$ref": f"#/components/parameters/{name}"} for name in COMPONENTS["parameters"]
        )
        operation["parameters"] = [*parameters, *references]
        responses["200"]["headers"] |= header_references("key")
    if not is_open:  # other answers have them as well, which would double the document
        for status in responses.keys() & {"200", "429"}:
            responses[status]["headers"] |= header_references("limits")


def _without_null(schema: Json) -> Iterator[Json]:
    return (one for one in schema.get("anyOf", [schema]) if one != {"type": "null"})


def _add_examples(operation: Json, schemas: Json) -> None:
    """Gives JSON bodies that have no example one, composed of the examples of their fields."""
    taken = operation.get("requestBody", {}).get("content", {}).get(JSON)
    if taken is not None and "examples" not in taken:
        taken["examples"] = {"example": {"value": _example(taken["schema"], schemas)}}
    given = operation["responses"]["200"]["content"].get(JSON)
    if given is not None and "example" not in given:
        given["example"] = _example(given["schema"], schemas)


def _example(schema: Json, schemas: Json) -> Any:
    """A value that fits: with all fields that are required, or have examples of their own."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].removeprefix(SCHEMAS)], schemas)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    match schema.get("type"):
        case "object":
            required = schema.get("required", ())
            return {
                name: _example(one, schemas)
                for name, one in schema.get("properties", {}).items()
                if name in required or "examples" in one
            }
        case "array":
            item = schema["items"]
            return [_example(item, schemas)] if "$ref" in item or "examples" in item else []
        case kind:  # null is one of several types, which have no common one
            return {"integer": 0, "number": 0.0, "boolean": False, "string": ""}.get(str(kind))


def _correct(schema: Any) -> None:
    """Removes titles and null defaults, which carry no information, makes bounds integers again,
    and corrects what pydantic writes for a dict: the number of its keys and their pattern.
    """
    if isinstance(schema, list):
        for one in schema:
            _correct(one)
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("title"), str):
        del schema["title"]
    if schema.get("default", ...) is None:
        del schema["default"]
    schema |= {name: min(whole(schema[name]), INT64_MAX) for name in BOUNDS & schema.keys()}
    if schema.get("type") == "object":
        if "maxLength" in schema:
            schema["maxProperties"] = schema.pop("maxLength")
        if "patternProperties" in schema:
            ((pattern, values),) = schema.pop("patternProperties").items()
            schema |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    for one in schema.values():
        _correct(one)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """The largest vocabulary and context of all models, in tokens."""

    vocabulary: int
    context: int


def model_sizes(cards: Iterable[ModelCard]) -> ModelSizes | None:
    facts = [card.facts for card in cards]
    if not facts:
        return None
    return ModelSizes(
        vocabulary=max(one.vocab_size for one in facts),
        context=max(one.context_length for one in facts),
    )


def add_bounds(schemas: Json, limits: FieldLimits, sizes: ModelSizes | None) -> None:
    """Adds the bounds to schemas. `sizes`: None while no model is known."""
    for schema in schemas.values():
        properties = schema.get("properties", {})
        if "messages" in properties:  # a chat of whatever protocol
            # Only in the description: hardly any model's context holds so many messages.
            properties["messages"]["description"] += f"; at most {limits.messages}"
            _bound(properties.get("tools", {}), "array", maxItems=limits.tools)
    for name in ("ChatCompletionBody", "CompletionBody"):
        _bound_generation(schemas[name]["properties"], limits)
    _bound_choices(schemas["CompletionBody"]["properties"], limits)
    if sizes is not None:
        tokens = schemas["DetokenizeBody"]["properties"]["tokens"]
        _bound(tokens, "array", maxItems=sizes.context)
        _bound_ids(tokens, sizes)
        for name in ("ChatCompletionBody", "CompletionBody"):
            for field in ("prompt", "prompt_token_ids", "allowed_token_ids", "stop_token_ids"):
                _bound_ids(schemas[name]["properties"].get(field, {}), sizes)


def _bound_ids(schema: Json, sizes: ModelSizes) -> None:
    """Bounds the ids of each list of token ids, and of lists of these."""
    for form in (schema, *schema.get("anyOf", ()), *_nested(schema)):
        if form.get("type") == "array":
            _bound(form["items"], "integer", maximum=sizes.vocabulary - 1)
            _bound_ids(form["items"], sizes)


def _bound_generation(properties: Json, limits: FieldLimits) -> None:
    _bound(properties["n"], "integer", maximum=limits.choices)
    for form in properties["service_tier"]["anyOf"]:
        if "enum" in form:
            form["enum"] = [*filter(limits.has_tier, form["enum"])]


def _bound_choices(properties: Json, limits: FieldLimits) -> None:
    """Each prompt of a list has its choices; a list of token ids is one prompt."""
    _bound(properties["best_of"], "integer", maximum=limits.choices)
    for form in properties["prompt"]["anyOf"]:
        if form.get("items", {}).get("type") in ("string", "array"):
            _bound(form, "array", maxItems=limits.choices)


def _bound(schema: Json, kind: str, **keywords: int) -> None:
    """Tightens the keywords of the schema's alternatives that have this type."""
    for form in (schema, *schema.get("anyOf", ()), *_nested(schema)):
        if form.get("type") != kind:
            continue
        for name, bound in keywords.items():
            closer = max if name == "minimum" else min
            form[name] = closer(bound, form.get(name, bound))


def _nested(schema: Json) -> list[Json]:
    return [form for one in (schema, *schema.get("anyOf", ())) for form in one.get("oneOf", ())]


# parameters.md has the rows of the tables in docs/api.md; a test compares them.
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<of>\w+) \| (?P<words>.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def _describe(schemas: dict[str, Any]) -> None:
    """Gives each field of the bodies the description in its row.

    Raises:
        KeyError: a field has no row.
    """
    described = (row for each in PROTOCOLS for row in each.described.items())
    for name, kinds in described:
        words = {one: text for kind in kinds for one, text in _rows()[kind].items()}
        for field, schema in schemas[name]["properties"].items():
            schema["description"] = words[field]


@cache
def _rows() -> Mapping[str, Mapping[str, str]]:
    """Kind of body -> field -> description. Links are removed, since they lead nowhere here."""
    folder = resources.files("proxy.api.openai")
    table = (folder / "parameters.md").read_text()
    found: dict[str, dict[str, str]] = {}
    for row in ROW.finditer(table):
        words = LINK.sub(r"\1", row["words"]).replace("\\|", "|")
        found.setdefault(row["of"], {})[row["name"]] = words[0].upper() + words[1:]
    return found
