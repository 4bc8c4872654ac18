"""Compares values with the types that upstream declares, as its recorded files write them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from build_engines.upstream.signatures import RecordedClasses

LONGEST_SHOWN = 60
PLAIN: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "PositiveInt": (int,),
    "NonNegativeInt": (int,),
    "float": (int, float),
    "NonNegativeFloat": (int, float),
    "str": (str,),
    "dict": (dict,),
    "list": (list,),
}
LEAST: Mapping[str, float] = {"NonNegativeInt": 0, "PositiveInt": 1, "NonNegativeFloat": 0}


def differences(value: Any, kind: str, record: RecordedClasses, place: str) -> Iterator[str]:
    """Why `value`, as YAML has it, does not fit a type such as `Optional[List[int]]`.

    Args:
        place: the name of the argument, with those around it: `moe_config.backend`.
    """
    yield from _differences(value, ast.parse(kind, mode="eval").body, record, place)


def unknown_field(name: str, record: RecordedClasses, owner: str, place: str) -> str:
    """The message for a field that the class `owner` does not have."""
    known = sorted(record.parameters(owner))
    near = get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]}?" if near else f"{owner} has {', '.join(known)}"
    return f"{record.product} has no {place}: {meant}"


def _differences(value: Any, node: ast.expr, record: RecordedClasses, place: str) -> Iterator[str]:
    match node:
        case ast.Name(id="Any"):
            return
        case ast.Name(id=name) if name in record.aliases:
            yield from differences(value, record.aliases[name], record, place)
        case ast.Name(id=name) if name in record.rows:
            yield from _of_class(value, name, record, place)
        case ast.Name(id=name) if name not in PLAIN:
            yield f"{place} takes {name}, which cannot be written in models.yaml"
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            if value is not None:
                yield from _differences(value, inner, record, place)
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, *_])):
            yield from _differences(value, inner, record, place)
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=kinds)):
            yield from _of_union(value, node, kinds, record, place)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _of_union(value, node, [left, right], record, place)
        case ast.Subscript(value=ast.Name(id="List" | "list"), slice=inner) if _is(value, "list"):
            for number, item in enumerate(value):
                yield from _differences(item, inner, record, f"{place}[{number}]")
        case ast.Subscript(
            value=ast.Name(id="Dict" | "dict"), slice=ast.Tuple(elts=[key, inner])
        ) if _is(value, "dict"):
            for name, item in value.items():
                yield from _differences(name, key, record, f"the key of {place}")
                yield from _differences(item, inner, record, f"{place}.{name}")
        case _ if not _fits(value, node):
            yield f"{place} is {_shown(value)}, must be {ast.unparse(node)}"


def _fits(value: Any, node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name):
            return _is(value, name) and (name not in LEAST or value >= LEAST[name])
        case ast.Constant(value=None):
            return value is None
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            choices = ast.literal_eval(inner)
            return value in (choices if isinstance(choices, tuple) else (choices,))
        case _:
            return False


def _is(value: Any, kind: str) -> bool:
    """YAML's true is no number, although Python's is."""
    return isinstance(value, PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool))


def _of_union(
    value: Any, node: ast.expr, kinds: list[ast.expr], record: RecordedClasses, place: str
) -> Iterator[str]:
    """A mapping is compared with the class that it resembles most."""
    found = [list(_differences(value, kind, record, place)) for kind in kinds]
    if not all(found):
        return
    if isinstance(value, dict):
        yield from min(found, key=len)
    else:
        yield f"{place} is {_shown(value)}, must be {ast.unparse(node)}"


def _of_class(value: Any, name: str, record: RecordedClasses, place: str) -> Iterator[str]:
    """A mapping of a class's fields, or a member of an enumeration."""
    members = record.rows[name].get("members")
    if members is not None:
        if not isinstance(value, str) or value not in {*members, *map(str, members.values())}:
            yield f"{place} is {_shown(value)}, must be one of {', '.join(members)}"
        return
    if not isinstance(value, dict):
        yield f"{place} is {_shown(value)}, must be a mapping with fields of {name}"
        return
    fields = record.fields(name)
    for field, item in value.items():
        inner = f"{place}.{field}"
        if field not in record.parameters(name):
            yield unknown_field(str(field), record, name, inner)
        else:
            yield from differences(item, fields[field]["type"], record, inner)
    for field in fields:
        if "default" not in fields[field] and field not in value:
            yield f"{place} needs {field}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
