"""Tools that a model may call, and its calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolGrammar:
    """The grammar of a custom tool's input. `definition`: as the caller wrote it."""

    syntax: Literal["lark", "regex"]
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool of the caller's. `parameters`: a JSON Schema; None for no arguments.

    is_strict: arguments must conform to the schema, not only aim at it. unenforced: keywords of
    `parameters` that a grammar does not enforce. runs_here: it is the
    proxy's own, see domain.server_tools. returns: what is said of its results, for templates, by
    the name that the caller has for it.
    is_custom: it takes plain text, which conforms to `grammar`, and has no parameters; without a
    grammar, any text.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    is_strict: bool = False
    unenforced: tuple[str, ...] = ()
    runs_here: bool = False
    returns: Mapping[str, Any] = field(default_factory=dict)
    is_custom: bool = False
    grammar: ToolGrammar | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """`arguments`: JSON, as the model wrote it; of a custom tool, its plain input text."""

    id: str
    name: str
    arguments: str
    is_custom: bool = False


class ToolMode(str, Enum):
    """Whether the model calls tools: as it likes, not at all, or at least one."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """What may be called, and must be. `allowed`: names, None for all tools.

    is_named: the caller named the one function to call.
    """

    mode: ToolMode = ToolMode.AUTO
    allowed: tuple[str, ...] | None = None
    is_named: bool = False
