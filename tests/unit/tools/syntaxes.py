"""Calls written in each family's syntax, as its models write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Call = dict[str, Any]


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def objects(calls: list[Call], key: str = "arguments") -> list[str]:
    return [f'{{"name": {dumped(c["name"])}, "{key}": {dumped(c["arguments"])}}}' for c in calls]


def listed(calls: list[Call]) -> str:
    return f"[{', '.join(objects(calls))}]"


def hermes(calls: list[Call]) -> str:
    return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in objects(calls))


def internlm(calls: list[Call]) -> str:
    start, end = "<|action_start|> <|plugin|>\n", "<|action_end|>"
    return "\n".join(f"{start}{text}{end}" for text in objects(calls, "parameters"))


# What a syntax has no way to say.
UNSAYABLE: dict[str, Callable[[Call, dict[str, Any]], bool]] = {}

SYNTAXES: dict[str, Callable[[list[Call]], str]] = {
    "hermes": hermes,
    "granite": lambda calls: f"<|tool_call|>{listed(calls)}",
    "jamba": lambda calls: f"<tool_calls>{listed(calls)}</tool_calls>",
    "phi4_mini_json": lambda calls: f"functools{listed(calls)}",
    "internlm": internlm,
}
