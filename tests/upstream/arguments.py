"""The command line arguments of upstream's tools, from their calls of add_argument."""

from __future__ import annotations

import ast
from typing import Any

from tests.upstream.classes import fields_of
from tests.upstream.expressions import value

KEPT = ("action", "choices", "const", "default", "dest", "nargs", "required")
PLUGIN_CONFIG, PLUGIN_NAMES = "PluginConfig", "cli_plugin_args"


def arguments_of(tree: ast.Module) -> list[dict[str, Any]]:
    """One row for each add_argument: its flags, and those of its keywords that are not prose."""
    return [
        _row(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_argument"
    ]


def plugin_arguments_of(tree: ast.Module) -> list[dict[str, Any]]:
    """The arguments that upstream's add_plugin_argument makes of the fields of PluginConfig.

    A field of literals becomes these and `disable`, a boolean `enable` or `disable`.
    """
    names = _constant(tree, PLUGIN_NAMES)
    aliases = _aliases(tree)
    fields = fields_of(tree)[PLUGIN_CONFIG]["fields"]
    return [_plugin_row(name, fields[name], aliases) for name in fields if name in names]


def _row(call: ast.Call) -> dict[str, Any]:
    row: dict[str, Any] = {"flags": [value(flag) for flag in call.args]}
    for keyword in call.keywords:
        if keyword.arg == "type":
            row["type"] = ast.unparse(keyword.value)
        elif keyword.arg in KEPT:
            row[keyword.arg] = value(keyword.value)
    return row


def _constant(tree: ast.Module, name: str) -> Any:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return value(node.value)
    raise ValueError(f"plugin.py has no {name}")


def _aliases(tree: ast.Module) -> dict[str, str]:
    return {
        ast.unparse(node.targets[0]): ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
    }


def _plugin_row(name: str, field: dict[str, Any], aliases: dict[str, str]) -> dict[str, Any]:
    kind, default = field["type"], field["default"]
    if kind == "bool":
        choices = ["enable", "disable"]
        return _choice(name, choices, "enable" if default else "disable")
    if kind == "int":
        return {"flags": [f"--{name}"], "type": "int", "default": default}
    literals = _literals(kind, aliases)
    has_own_default = name == "gemm_plugin"  # which upstream keeps apart
    return _choice(
        name,
        [literal or "disable" for literal in literals],
        default if has_own_default else default or "disable",
    )


def _choice(name: str, choices: list[str], default: str | None) -> dict[str, Any]:
    return {"flags": [f"--{name}"], "type": "str", "default": default, "choices": choices}


def _literals(kind: str, aliases: dict[str, str]) -> list[str | None]:
    for alias, meaning in aliases.items():
        kind = kind.replace(alias, meaning)
    for node in ast.walk(ast.parse(kind)):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            return list(dict.fromkeys(ast.literal_eval(node.slice)))
    raise ValueError(f"{kind} is neither a boolean, an integer nor literals")
