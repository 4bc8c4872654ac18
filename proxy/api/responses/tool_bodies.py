"""The tools of a response: their bodies, and the Offer, which names them for the model.

A model sees one list of functions. The tools of a namespace are in it under joined names; the
client's own search for tools is a function, too. Calls and history are renamed on both ways.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, StringConstraints, Tag
from pydantic.config import JsonDict

from proxy.api.openai.field_types import (
    DroppedTool,
    Json,
    ListOf,
    Only,
    RequestBody,
    check_chosen,
    check_own_names,
    check_some_usable,
    dropped_types,
    type_of,
)
from proxy.api.openai.message_bodies import FunctionName
from proxy.domain.errors import InvalidRequest, unsupported
from proxy.domain.server_tools import ServerTool
from proxy.domain.tools import Tool, ToolChoice, ToolGrammar, ToolMode

LONGEST_NAME = 64  # characters of a function's name, as FunctionName
SEARCH = "tool_search"
MOST_TIMES = 4  # tools that a conversation repeats, over those of one request


class FunctionTool(RequestBody):
    """`output_schema` describes results; it and the last two fields have no effect: the model knows
    all tools from the beginning.
    """

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None
    output_schema: Json | None = None
    allowed_callers: ListOf[Annotated[str, Only("direct")]] | None = None
    defer_loading: bool | None = None

    def to_domain(self) -> Tool:
        return Tool(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            is_strict=bool(self.strict),
        )


class TextInput(RequestBody):
    type: Literal["text"]


class GrammarInput(RequestBody):
    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: Annotated[str, Field(min_length=1)]


class FreeTextTool(RequestBody):
    type: Literal["custom"]
    name: FunctionName
    description: str | None = None
    format: Annotated[TextInput | GrammarInput, Field(discriminator="type")] | None = None
    allowed_callers: ListOf[Annotated[str, Only("direct")]] | None = None
    defer_loading: bool | None = None

    def to_domain(self) -> Tool:
        grammar = None
        if isinstance(self.format, GrammarInput):
            grammar = ToolGrammar(syntax=self.format.syntax, definition=self.format.definition)
        return Tool(name=self.name, description=self.description, is_custom=True, grammar=grammar)


class ClientSearch(RequestBody):
    """The caller's own search for tools, which the model calls as a function."""

    type: Literal["tool_search"]
    execution: Literal["client"]
    description: str | None = None
    parameters: Json | None = None

    def to_domain(self) -> Tool:
        return Tool(name=SEARCH, description=self.description, parameters=self.parameters)


NAMES = {"function": "<function>", "custom": "<custom>", "namespace": "<namespace>"}


def _kind_of_tool(given: Any) -> str:
    kind = type_of(given)
    if kind == SEARCH:
        read = given.get if isinstance(given, dict) else partial(getattr, given)
        return "<search>" if read("execution", None) == "client" else "<dropped>"
    return NAMES.get(kind, "<dropped>") if isinstance(kind, str) else "<function>"


Dropped = Annotated[DroppedTool, Tag("<dropped>")]
PlainTool = Annotated[
    Annotated[FunctionTool, Tag("<function>")] | Annotated[FreeTextTool, Tag("<custom>")] | Dropped,
    Discriminator(lambda given: _kind_of_tool(given).replace("<namespace>", "<dropped>")),
]


_NAMESPACE: JsonDict = {"properties": {"type": {"const": "namespace"}}}
_SEARCH: JsonDict = {"properties": {"type": {"const": SEARCH}, "execution": {"const": "client"}}}


class OtherTool(DroppedTool):
    """The document's schema excludes what AnyTool has besides functions and custom tools."""

    model_config = ConfigDict(
        json_schema_extra={"not": {"anyOf": [_NAMESPACE, {**_SEARCH, "required": ["execution"]}]}}
    )


class NamespaceTool(RequestBody):
    """Functions and custom tools of one origin, such as an MCP server of the caller's."""

    type: Literal["namespace"]
    name: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    description: str | None = None
    tools: ListOf[PlainTool]


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("<function>")]
    | Annotated[FreeTextTool, Tag("<custom>")]
    | Annotated[NamespaceTool, Tag("<namespace>")]
    | Annotated[ClientSearch, Tag("<search>")]
    | Annotated[OtherTool, Tag("<dropped>")],
    Discriminator(_kind_of_tool),
]
Usable = FunctionTool | FreeTextTool | ClientSearch


class NamedTool(RequestBody):
    type: Literal["function", "custom"]
    name: FunctionName
    namespace: str | None = None


NamedOrDropped = Annotated[
    Annotated[NamedTool, Tag("<named>")] | Dropped,
    Discriminator(
        lambda given: (
            "<named>" if _kind_of_tool(given) in ("<function>", "<custom>") else "<dropped>"
        )
    ),
]


class AllowedTools(RequestBody):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[ListOf[NamedOrDropped], Field(min_length=1)]


def _kind_of_choice(given: Any) -> str:
    if isinstance(given, str):
        return "<mode>"
    if type_of(given) == "allowed_tools":
        return "<allowed>"
    return "<named>" if _kind_of_tool(given) in ("<function>", "<custom>") else "<dropped>"


AnyChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<mode>")]
    | Annotated[NamedTool, Tag("<named>")]
    | Annotated[AllowedTools, Tag("<allowed>")]
    | Dropped,
    Discriminator(_kind_of_choice),
]


Key = tuple[str | None, str]  # the namespace of a tool, and its name there


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A usable tool of the caller's. path: of its field. words: what describes its namespace; only
    the first tool there has them.
    """

    body: Usable
    path: str
    namespace: str | None = None
    words: str | None = None

    @property
    def key(self) -> Key:
        return self.namespace, SEARCH if isinstance(self.body, ClientSearch) else self.body.name


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as the model sees it, and as the caller has it."""

    tool: Tool
    listed: Listed


@dataclass(slots=True)
class Offer:
    """All tools of a request, by the names that the model knows."""

    tools: dict[str, Offered] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    _names: dict[Key, str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)  # the last one behind each name

    @classmethod
    def of(cls, body: Sequence[object], added: Sequence[Sequence[object]], most: int) -> Offer:
        """added: lists of tools in the input, in whose place a later one of the same name comes.

        Raises:
            InvalidRequest: they are more than MOST_TIMES `most`.
        """
        everything = [*body, *chain.from_iterable(added)]
        count = sum(len(one.tools) if isinstance(one, NamespaceTool) else 1 for one in everything)
        if count > most * MOST_TIMES:
            raise InvalidRequest(
                f"Invalid value for 'tools': with those in 'input' there are {count}, at most "
                f"{most * MOST_TIMES} are allowed.",
                param="tools",
            )
        found = {one.key: one for one in _each(body)}
        for tools in added:
            found |= {one.key: one for one in _each(tools, "input")}
        offer = cls(dropped=dropped_types(_nested(everything)))
        for key, one in sorted(found.items(), key=lambda each: each[0][0] is not None):
            name, tool = offer._own_name(joined(*key)), one.body.to_domain()
            if one.namespace is not None or name != tool.name:
                told = "\n\n".join(filter(None, (one.words, tool.description)))
                tool = replace(tool, name=name, description=told or None)
            offer._names[key] = name
            offer.tools[name] = Offered(tool, one)
        return offer

    def name(self, namespace: str | None, name: str) -> str:
        """What the model knows a tool as, also one that is not offered any more."""
        return self._names.get((namespace, name)) or joined(namespace, name)

    def listed(self, tools: Sequence[object]) -> str:
        """The result of a search for tools, as the model reads it."""
        return "\n".join(self.name(*one.key) for one in _each(tools)) or "No tool was found."

    def _own_name(self, name: str) -> str:
        taken, stem = name, name[: LONGEST_NAME - 4]
        while taken in self.tools:
            self._numbers[stem] = self._numbers.get(stem, 1) + 1
            taken = f"{stem}_{self._numbers[stem]}"
        return taken

    def domain_choice(self, choice: object) -> ToolChoice:
        names = tuple(self.name(one.namespace, one.name) for _, one in chosen(choice)) or None
        match choice:
            case None:
                return ToolChoice()
            case NamedTool():
                return ToolChoice(mode=ToolMode.REQUIRED, allowed=names, is_named=True)
            case AllowedTools():
                return ToolChoice(mode=ToolMode(choice.mode), allowed=names)
        return ToolChoice(mode=ToolMode(str(choice)))

    def check(self, choice: object, servers: Sequence[ServerTool]) -> None:
        """Raises InvalidRequest: no tool can be called, or `choice` needs one that there is not."""
        kinds = {name: one.listed.body.type for name, one in self.tools.items()}
        known: dict[str, str] = {**kinds, **{tool.name: "function" for tool in servers}}
        check_some_usable(self.dropped, bool(known))
        if isinstance(choice, DroppedTool) or (
            isinstance(choice, AllowedTools) and not chosen(choice)
        ):
            kind = choice.type if isinstance(choice, DroppedTool) else choice.tools[0].type
            raise unsupported(
                f"'tool_choice' needs the tool {kind!r}, which this server does not have: name a "
                "tool of the type 'function' or 'custom'.",
                param="tool_choice",
            )
        if choice in (None, "none", "auto"):
            return
        check_chosen(
            bool(known),
            (
                (path, one.name, one.type, known.get(self.name(one.namespace, one.name)))
                for path, one in chosen(choice)
            ),
        )


def joined(namespace: str | None, name: str) -> str:
    """A function's name for a tool of a namespace; one that is too long ends with a hash."""
    if namespace is None:
        return name
    whole = re.sub(r"[^A-Za-z0-9_.\-]", "_", f"{namespace}__{name}")
    if len(whole) <= LONGEST_NAME:
        return whole
    digest = hashlib.sha256(f"{namespace}\n{name}".encode()).hexdigest()[:8]
    return f"{whole[: LONGEST_NAME - 9]}_{digest}"


def check_names(tools: Sequence[object]) -> None:
    """Raises FieldError: two tools have the same name, in one namespace or in none."""
    each = _each(tools)
    check_own_names((f"{one.path}.name", "/".join(filter(None, one.key))) for one in each)


def _each(tools: Iterable[object], path: str | None = None) -> Iterator[Listed]:
    """The usable tools. path: for all of them."""
    for at, one in enumerate(tools):
        if isinstance(one, (FunctionTool, FreeTextTool, ClientSearch)):
            yield Listed(body=one, path=path or f"tools[{at}]")
        elif isinstance(one, NamespaceTool):
            words = one.description
            for number, inner in enumerate(one.tools):
                if not isinstance(inner, DroppedTool):
                    own = path or f"tools[{at}].tools[{number}]"
                    yield Listed(body=inner, path=own, namespace=one.name, words=words)
                    words = None


def _nested(tools: Iterable[object]) -> Iterator[object]:
    for tool in tools:
        yield from tool.tools if isinstance(tool, NamespaceTool) else (tool,)


def chosen(choice: object) -> list[tuple[str, NamedTool]]:
    """Each usable tool in `tool_choice`, with the path of its name."""
    if isinstance(choice, NamedTool):
        return [("tool_choice.name", choice)]
    if isinstance(choice, AllowedTools):
        named = enumerate(choice.tools)
        return [
            (f"tool_choice.tools[{at}].name", tool)
            for at, tool in named
            if isinstance(tool, NamedTool)
        ]
    return []
