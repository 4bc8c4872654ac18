"""JSON Schemas that are small to send and costly to check, compile or enforce."""

from __future__ import annotations

from typing import Any

from tests.long.hostile.attack import Send, Target
from tests.long.hostile.caller import CHAT, RENDER, burst, post
from tests.long.hostile.structured_attacks import fresh, on_engine, one

FORMATS = ("date-time", "uuid", "email", "ipv4", "ipv6", "uri", "hostname", "duration", "date")


def schema(given: Any) -> Send:
    def body(target: Target) -> dict[str, Any]:
        wanted = {"name": "s", "schema": {**given, "title": fresh()}, "strict": True}
        return on_engine(response_format={"type": "json_schema", "json_schema": wanted})(target)

    return post(body)


def guided(given: Any, path: str = CHAT) -> Send:
    return post(lambda target: on_engine(guided_json={**given, "title": fresh()})(target), path)


def properties(values: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": values,
        "required": list(values),
        "additionalProperties": False,
    }


def consts(count: int) -> dict[str, Any]:
    return {"oneOf": [{"const": f"value {i}"} for i in range(count)]}


def chain(length: int, last: dict[str, Any]) -> dict[str, Any]:
    links = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length}": last}}


def doubling(depth: int, keyword: str) -> dict[str, Any]:
    """Each definition has the next one twice: 2^depth when it is unfolded."""
    links = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{depth}": {"type": "string"}}}


def fan(depth: int) -> dict[str, Any]:
    """Each object has four properties of the next kind: 4^depth when it is unfolded."""
    links = {
        f"d{i}": properties({f"p{j}": {"$ref": f"#/$defs/d{i + 1}"} for j in range(4)})
        for i in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{depth}": {"type": "integer"}}}


def deep(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        made = properties({"a": made})
    return made


def objects(count: int) -> dict[str, Any]:
    """Branches that can only be told apart by comparing each with each other."""
    return {"oneOf": [properties({f"k{i}": {"type": "string"}}) for i in range(count)]}


PATTERNS = {f"p{i}": {"type": "string", "pattern": f"(a{{500}}){{500}}{i}"} for i in range(80)}
MANY = {f"p{i}": {"type": "string"} for i in range(4_900)}
FLOOD = {f"p{i}": {"type": "string", "format": FORMATS[i % 9]} for i in range(1_500)}

ATTACKS = [
    one("schema: oneOf of 1,500 consts", 1, schema(consts(1_500))),
    one("schema: oneOf of 3,000 consts", 1, schema(consts(3_000))),
    one("schema: anyOf of 3,000 consts", 1, schema({"anyOf": consts(3_000)["oneOf"]})),
    one("schema: oneOf of 800 objects", 1, schema(objects(800))),
    one("schema: oneOf of 400 enums of 20", 0,
        schema({"oneOf": [{"enum": [f"{i} {j}" for j in range(20)]} for i in range(400)]})),
    one("schema: a pattern of 6,000 escaped brackets", 1,
        schema({"type": "string", "pattern": "\\[" * 6_000})),
    one("schema: 80 patterns (a{500}){500}", 3, schema(properties(PATTERNS))),
    one("schema: a pattern with nested quantifiers", 3,
        schema({"type": "string", "pattern": "^" + "(" * 12 + "a" + "+)+" * 12 + "$"})),
    one("schema: 4,900 properties", 0, schema(properties(MANY))),
    one("schema: 4,900 optional properties", 0, schema({"type": "object", "properties": MANY})),
    one("schema: an enum of 50,000", 0, schema({"enum": [f"v{i}" for i in range(50_000)]})),
    one("schema: an enum of 12,000", 0, schema({"enum": [f"v{i}" for i in range(12_000)]})),
    one("schema: $ref chain of 2,000", 0, schema(chain(2_000, {"type": "string"}))),
    one("schema: $ref circle", 0, schema(chain(50, {"$ref": "#/$defs/d0"}))),
    one("schema: $ref to itself", 0, schema({"$ref": "#"})),
    one("schema: anyOf doubling 40 times", 0, schema(doubling(40, "anyOf"))),
    one("schema: allOf doubling 40 times", 0, schema(doubling(40, "allOf"))),
    one("schema: oneOf doubling 24 times", 0, schema(doubling(24, "oneOf"))),
    one("schema: properties fanning out 12 levels", 0, schema(fan(12))),
    one("schema: objects 60 deep", 0, schema(deep(60))),
    one("schema: objects 3,000 deep in JSON text", 0,
        post(on_engine(guided_json='{"properties":{"a":' * 3_000 + "{}" + "}}" * 3_000))),
    one("schema: maxLength of a billion", 0, schema({"type": "string", "maxLength": 10**9})),
    one("schema: minLength of 100,000", 0,
        schema(properties({f"p{i}": {"type": "string", "minLength": 100_000} for i in range(40)}))),
    one("schema: items 30,000 at least", 0,
        schema({"type": "array", "items": deep(5), "minItems": 30_000})),
    one("schema: prefixItems of 5,000", 0,
        schema({"type": "array", "prefixItems": [{"type": "integer"}] * 5_000})),
    one("schema: integers between 10^300 and 10^301", 0,
        schema({"type": "integer", "minimum": 10**300, "maximum": 10**301})),
    one("schema: 900 ranges of integers", 0,
        schema(properties({
            f"p{i}": {"type": "integer", "minimum": -(10**17) + i, "maximum": 10**17 - 7 * i}
            for i in range(900)
        }))),
    one("schema: propertyNames with 500 patterns", 0,
        schema({"type": "object", "propertyNames": {
            "anyOf": [{"pattern": f"^(a{{50}}){{50}}{i}$"} for i in range(500)]}})),
    one("schema: patternProperties of 300", 0,
        schema({"type": "object", "patternProperties": {
            f"^(k{{9}}{i}){{9}}": {"type": "string"} for i in range(300)}})),
    one("schema: 1,500 formats", 0, schema(properties(FLOOD))),
    one("render: oneOf of 3,000 consts", 1,
        guided(consts(3_000), RENDER)),
    one("render: 80 patterns (a{500}){500}", 3,
        guided(properties(PATTERNS), RENDER)),
    one("render: 80 patterns (a{500}){500}, eight at once", 3,
        burst(on_engine(guided_json=properties(PATTERNS)), RENDER, count=8), wall_s=25),
    one("schema: oneOf of 1,500 consts, not strict", 1, guided(consts(1_500))),
]  # fmt: skip
