"""The cost of examining a caller's texts grows with their size, not with its square."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from proxy.domain.errors import RequestError
from proxy.language.structured.constraint_request import (
    ConstraintRequest,
    Form,
    GuideLimits,
    constraint_of,
    unenforced_by_tool,
)
from proxy.language.structured.schema import SchemaLimits

LIMITS = GuideLimits(
    grammar_bytes=10**7,
    regex_bytes=10**7,
    schemas=SchemaLimits(size_bytes=10**7, properties=10**6, unfolded=10**7),
)
STRING = {"type": "string"}


def examined(form: Form, value: object) -> None:
    """A refusal is fine, and must be fast as well."""
    with suppress(RequestError):
        constraint_of(ConstraintRequest(field="f", form=form, value=value), LIMITS)


def object_with(n: int) -> dict:
    return {"type": "object", "properties": {"k": {"const": n}}, "required": ["k"]}


def link(at: int, last: int) -> dict:
    """A link of a chain that leads both ways. Its values end because those of link 0 do."""
    names = {"next": min(at + 1, last), "before": max(at - 1, 0)}
    listed = {name: {"$ref": f"#/$defs/{number}"} for name, number in names.items()}
    return {"type": "object", "properties": listed, "required": ["before"] if at else []}


GRAMMARS: dict[str, Callable[[int], str]] = {
    "newlines": lambda n: "\n" * n,
    "blank lines": lambda n: " \n" * n,
    "question marks": lambda n: "?" * n,
    "words": lambda n: "a " * n,
    "open classes": lambda n: "start: /" + "[" * n + "/",
    "open classes before a backslash": lambda n: "start: /" + "[" * n + r"\\/",
    "backslashes": lambda n: "start: /" + r"\\" * n + "/",
    "a string": lambda n: 'start: "' + "a" * n + '"',
    "a string in either case": lambda n: 'start: "' + "a" * n + '"i',
    "imports": lambda n: "start: INT\n" + "%import common.INT\n" * (n // 20),
    "a chain of rules": lambda n: (
        "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(n // 10)) + f'r{n // 10}: "a"'
    ),
}
SCHEMAS: dict[str, Callable[[int], dict]] = {
    "oneOf consts": lambda n: {"oneOf": [{"const": i} for i in range(n // 8)]},
    "oneOf enums": lambda n: {"oneOf": [{"enum": [*range(i, n, 9)]} for i in range(9)]},
    "oneOf objects": lambda n: {"oneOf": [object_with(i) for i in range(n // 32)]},
    "oneOf objects without a discriminator": lambda n: {
        "oneOf": [{"type": "object", "minProperties": i} for i in range(n // 32)]
    },
    "pattern of brackets": lambda n: {**STRING, "pattern": r"\[" * (n // 4)},
    "pattern of backslashes": lambda n: {**STRING, "pattern": r"\\" * (n // 4)},
    "enum with a type": lambda n: {**STRING, "enum": [f"a{i}" for i in range(n // 4)]},
    "a chain of references": lambda n: {
        "$ref": "#/$defs/0",
        "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(n // 16)}
        | {str(n // 16): {}},
    },
    "a chain both ways": lambda n: {
        "$ref": "#/$defs/0",
        "$defs": {str(i): link(i, n // 64) for i in range(n // 64 + 1)},
    },
    "a chain both ways, and all of its links": lambda n: {
        "type": "object",
        "properties": {f"p{i}": {"$ref": f"#/$defs/{i}"} for i in range(n // 64 + 1)},
        "required": [f"p{i}" for i in range(n // 64 + 1)],
        "$defs": {str(i): link(i, n // 64) for i in range(n // 64)}
        | {str(n // 64): {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    },
    "references to one": lambda n: {
        "$defs": {"a": {"anyOf": [{"const": i} for i in range(n // 32)]}},
        "anyOf": [{"$ref": "#/$defs/a"} for _ in range(n // 32)],
    },
}


def spent(work: Callable[[], object]) -> float:
    def once() -> float:
        start = time.thread_time()
        work()
        return time.thread_time() - start

    return min(once(), once())


def check_growth(cost_of: Callable[[int], float]) -> None:
    """Eight times the size: 64 times the cost if it were quadratic."""
    small = cost_of(4_000)
    assert cost_of(32_000) < 24 * small + 0.05


@pytest.mark.parametrize("kind", GRAMMARS)
def test_the_cost_of_a_grammar_is_linear_in_its_length(kind):
    check_growth(lambda n: spent(lambda: examined(Form.GRAMMAR, GRAMMARS[kind](n))))


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_cost_of_a_schema_is_linear_in_its_length(kind):
    def cost(n: int) -> float:
        schema = SCHEMAS[kind](n)
        return spent(lambda: examined(Form.SCHEMA, schema))

    check_growth(cost)


def test_the_schemas_of_tools_are_as_cheap():
    def cost(n: int) -> float:
        schema = SCHEMAS["oneOf consts"](n)
        return spent(lambda: unenforced_by_tool([("tools[0]", schema)], LIMITS.schemas))

    check_growth(cost)
