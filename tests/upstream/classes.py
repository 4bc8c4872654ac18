"""Fields, enum members and methods of upstream's classes."""

from __future__ import annotations

import ast
from typing import Any

from tests.upstream.expressions import annotation, value

DISPATCH = "config_classes"  # in DecodingBaseConfig.from_dict: decoding_type -> class
METHODS = ("__init__", "generate_async", "get_stats_async", "get_stats")


def fields_of(tree: ast.Module) -> dict[str, dict[str, Any]]:
    """Class -> bases, fields {name: type, default, is_init}, members, attributes, methods."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: _class(node) for node in classes}


def aliases_of(tree: ast.Module) -> dict[str, str]:
    """Name -> the type that it stands for, of each TypeAlias."""
    return {
        ast.unparse(node.target): ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and annotation(node.annotation) == "TypeAlias"
        and node.value is not None
    }


def _class(node: ast.ClassDef) -> dict[str, Any]:
    found: dict[str, Any] = {"bases": [ast.unparse(base) for base in node.bases]}
    fields = {name: row for name, row in map(_field, _declared(node)) if row is not None}
    members = {
        ast.unparse(item.targets[0]): value(item.value)
        for item in node.body
        if isinstance(item, ast.Assign)
    }
    functions = [
        item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    found["fields"] = fields
    if members:
        found["members"] = members
    if functions:
        found["attributes"] = sorted({item.name for item in functions} | _assigned(functions))
        methods = {item.name: _parameters(item) for item in functions if item.name in METHODS}
        found |= {"methods": methods} if methods else {}
    dispatch = _dispatch(functions)
    return found | ({"decoding_types": dispatch} if dispatch else {})


def _declared(node: ast.ClassDef) -> list[ast.AnnAssign]:
    return [item for item in node.body if isinstance(item, ast.AnnAssign)]


def _field(item: ast.AnnAssign) -> tuple[str, dict[str, Any] | None]:
    """None for a class variable or a private attribute, which are no parameters."""
    name, kind = ast.unparse(item.target), annotation(item.annotation)
    if kind.startswith("ClassVar"):
        return name, None
    row: dict[str, Any] = {"type": kind}
    if not isinstance(item.value, ast.Call):
        return name, row | ({} if item.value is None else {"default": value(item.value)})
    function = ast.unparse(item.value.func)
    if function == "PrivateAttr":
        return name, None
    keywords = {keyword.arg: keyword.value for keyword in item.value.keywords}
    if "default" in keywords:
        row["default"] = value(keywords["default"])
    if "default_factory" in keywords:
        row["default"] = {"expression": f"{ast.unparse(keywords['default_factory'])}()"}
    if "status" in keywords:
        row["status"] = value(keywords["status"])
    if "init" in keywords:
        row["is_init"] = value(keywords["init"])
    return name, row


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[dict[str, Any]]:
    arguments = function.args
    missing = [None] * (len(arguments.args) - len(arguments.defaults))
    positional = zip(arguments.args, [*missing, *arguments.defaults], strict=True)
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    rows = []
    for argument, default in (*positional, *named):
        row: dict[str, Any] = {"name": argument.arg}
        if argument.annotation is not None:
            row["type"] = annotation(argument.annotation)
        if default is not None:
            row["default"] = value(default)
        rows.append(row)
    if arguments.kwarg is not None:
        rows.append({"name": arguments.kwarg.arg, "is_any": True})
    return rows


def _assigned(functions: list[Any]) -> set[str]:
    """The attributes that __init__ sets on self."""
    found = set()
    for function in functions:
        if function.name != "__init__":
            continue
        for node in ast.walk(function):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            for target in targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    found.add(target.attr)
    return found


def _dispatch(functions: list[Any]) -> dict[str, str]:
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == DISPATCH:
                pairs = zip(node.value.keys, node.value.values, strict=True)
                return {key.value: ast.unparse(kind) for key, kind in pairs}
    return {}
