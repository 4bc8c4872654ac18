"""JSON Schemas that are small to send and costly to check, compile or enforce."""

from __future__ import annotations

from typing import Any

from tests.long.hostile.attack import Attack, Target
from tests.long.hostile.caller import CHAT, RENDER, Burst, burst, post
from tests.long.hostile.structured_attacks import fresh, on_engine

FORMATS = ("date-time", "uuid", "email", "ipv4", "ipv6", "uri", "hostname", "duration", "date")


def schema(given: Any) -> Burst:
    def body(target: Target) -> dict[str, Any]:
        wanted = {"name": "s", "schema": {**given, "title": fresh()}, "strict": True}
        return on_engine(response_format={"type": "json_schema", "json_schema": wanted})(target)

    return post(body)


def guided(given: Any, path: str = CHAT) -> Burst:
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
    Attack("schema: oneOf of 1,500 consts", schema(consts(1_500))),
    Attack("schema: oneOf of 3,000 consts", schema(consts(3_000))),
    Attack("schema: anyOf of 3,000 consts", schema({"anyOf": consts(3_000)["oneOf"]})),
    Attack("schema: oneOf of 800 objects", schema(objects(800))),
    Attack("schema: oneOf of 400 enums of 20",
        schema({"oneOf": [{"enum": [f"{i} {j}" for j in range(20)]} for i in range(400)]})),
    Attack("schema: a pattern of 6,000 escaped brackets",
        schema({"type": "string", "pattern": "\\[" * 6_000})),
    Attack("schema: 80 patterns (a{500}){500}", schema(properties(PATTERNS))),
    Attack("schema: a pattern with nested quantifiers",
        schema({"type": "string", "pattern": "^" + "(" * 12 + "a" + "+)+" * 12 + "$"})),
    Attack("schema: 4,900 properties", schema(properties(MANY))),
    Attack("schema: 4,900 optional properties", schema({"type": "object", "properties": MANY})),
    Attack("schema: an enum of 50,000", schema({"enum": [f"v{i}" for i in range(50_000)]})),
    Attack("schema: an enum of 12,000", schema({"enum": [f"v{i}" for i in range(12_000)]})),
    Attack("schema: $ref chain of 2,000", schema(chain(2_000, {"type": "string"}))),
    Attack("schema: $ref circle", schema(chain(50, {"$ref": "#/$defs/d0"}))),
    Attack("schema: $ref to itself", schema({"$ref": "#"})),
    Attack("schema: anyOf doubling 40 times", schema(doubling(40, "anyOf"))),
    Attack("schema: allOf doubling 40 times", schema(doubling(40, "allOf"))),
    Attack("schema: oneOf doubling 24 times", schema(doubling(24, "oneOf"))),
    Attack("schema: properties fanning out 12 levels", schema(fan(12))),
    Attack("schema: objects 60 deep", schema(deep(60))),
    Attack("schema: objects 3,000 deep in JSON text",
        post(on_engine(guided_json='{"properties":{"a":' * 3_000 + "{}" + "}}" * 3_000))),
    Attack("schema: maxLength of a billion", schema({"type": "string", "maxLength": 10**9})),
    Attack("schema: minLength of 100,000",
        schema(properties({f"p{i}": {"type": "string", "minLength": 100_000} for i in range(40)}))),
    Attack("schema: items 30,000 at least",
        schema({"type": "array", "items": deep(5), "minItems": 30_000})),
    Attack("schema: prefixItems of 5,000",
        schema({"type": "array", "prefixItems": [{"type": "integer"}] * 5_000})),
    Attack("schema: integers between 10^300 and 10^301",
        schema({"type": "integer", "minimum": 10**300, "maximum": 10**301})),
    Attack("schema: 900 ranges of integers",
        schema(properties({
            f"p{i}": {"type": "integer", "minimum": -(10**17) + i, "maximum": 10**17 - 7 * i}
            for i in range(900)
        }))),
    Attack("schema: propertyNames with 500 patterns",
        schema({"type": "object", "propertyNames": {
            "anyOf": [{"pattern": f"^(a{{50}}){{50}}{i}$"} for i in range(500)]}})),
    Attack("schema: patternProperties of 300",
        schema({"type": "object", "patternProperties": {
            f"^(k{{9}}{i}){{9}}": {"type": "string"} for i in range(300)}})),
    Attack("schema: 1,500 formats", schema(properties(FLOOD))),
    Attack("render: oneOf of 3,000 consts",
        guided(consts(3_000), RENDER)),
    Attack("render: 80 patterns (a{500}){500}",
        guided(properties(PATTERNS), RENDER)),
    Attack("render: 80 patterns (a{500}){500}, eight at once",
        burst(on_engine(guided_json=properties(PATTERNS)), RENDER, count=8), wall_s=25),
    Attack("schema: oneOf of 1,500 consts, not strict", guided(consts(1_500))),
]  # fmt: skip
