"""The fields of a chat request about tools: their definitions, and which the model may call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from proxy.api.openai.field_types import (
    AtMostTools,
    DroppedTool,
    ListOf,
    Only,
    RequestBody,
    check_chosen,
    check_own_names,
    check_some_usable,
    dropped_types,
    type_of,
)
from proxy.api.openai.message_bodies import FunctionName, kind_of_tool
from proxy.domain.server_tools import ServerTool
from proxy.domain.tools import Tool, ToolChoice, ToolGrammar, ToolMode

AUTO = ToolChoice(mode=ToolMode.AUTO)


class FunctionBody(RequestBody):
    """A function. Its result's schema is `return` in transformers, `response` in Gemini, BFCL."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    return_: dict[str, Any] | None = Field(None, alias="return")
    response: dict[str, Any] | None = None

    @property
    def returns(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in (("return", self.return_), ("response", self.response))
            if value is not None
        }


class FunctionToolBody(RequestBody):
    """A tool. `strict` may also stand here; the function's own value takes precedence."""

    type: Annotated[Literal["function", "custom"], Only("function")]
    function: FunctionBody
    strict: bool | None = None

    def to_domain(self) -> Tool:
        function = self.function
        is_strict = self.strict if function.strict is None else function.strict
        return Tool(
            name=function.name,
            description=function.description,
            parameters=function.parameters,
            is_strict=bool(is_strict),
            returns=function.returns,
        )


class GrammarBody(RequestBody):
    syntax: Literal["lark", "regex"]
    definition: str


class TextFormatBody(RequestBody):
    type: Annotated[Literal["text", "grammar"], Only("text")]


class GrammarFormatBody(RequestBody):
    type: Literal["grammar"]
    grammar: GrammarBody


def _kind_of_format(given: Any) -> str:
    return "<grammar>" if type_of(given) == "grammar" else "<text>"


class CustomBody(RequestBody):
    """What a custom tool takes is plain text, unless `format` has a grammar."""

    name: FunctionName
    description: str | None = None
    format: (
        Annotated[
            Annotated[TextFormatBody, Tag("<text>")]
            | Annotated[GrammarFormatBody, Tag("<grammar>")],
            Discriminator(_kind_of_format),
        ]
        | None
    ) = None


class CustomToolBody(RequestBody):
    type: Literal["custom"]
    custom: CustomBody

    def to_domain(self) -> Tool:
        grammar = None
        if isinstance(self.custom.format, GrammarFormatBody):
            given = self.custom.format.grammar
            grammar = ToolGrammar(syntax=given.syntax, definition=given.definition)
        return Tool(
            name=self.custom.name,
            description=self.custom.description,
            is_custom=True,
            grammar=grammar,
        )


def _kind_of_offered(given: Any) -> str:
    kind = type_of(given)
    is_known = not isinstance(kind, str) or kind in ("function", "custom")
    return kind_of_tool(given) if is_known else "<dropped>"


ToolBody = Annotated[
    Annotated[FunctionToolBody, Tag("<function>")]
    | Annotated[CustomToolBody, Tag("<custom>")]
    | Annotated[DroppedTool, Tag("<dropped>")],
    Discriminator(_kind_of_offered),
]


class ToolNameBody(RequestBody):
    name: FunctionName


class NamedFunctionBody(RequestBody):
    type: Annotated[Literal["function", "custom"], Only("function")]
    function: ToolNameBody


class NamedCustomBody(RequestBody):
    type: Literal["custom"]
    custom: ToolNameBody


NamedToolBody = Annotated[
    Annotated[NamedFunctionBody, Tag("<function>")] | Annotated[NamedCustomBody, Tag("<custom>")],
    Discriminator(kind_of_tool),
]


class AllowedBody(RequestBody):
    mode: Literal["auto", "required"]
    tools: Annotated[ListOf[NamedToolBody], Field(min_length=1)]


class AllowedToolsBody(RequestBody):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedBody


def _kind_of_choice(given: Any) -> str:
    if not isinstance(given, dict):
        return "<mode>"
    return "<allowed>" if given.get("type") == "allowed_tools" else kind_of_tool(given)


ToolChoiceBody = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<mode>")]
    | Annotated[NamedFunctionBody, Tag("<function>")]
    | Annotated[NamedCustomBody, Tag("<custom>")]
    | Annotated[AllowedToolsBody, Tag("<allowed>")],
    Discriminator(_kind_of_choice),
]


class ToolsBody(RequestBody):
    """The fields of a chat about tools. An empty list of tools is the same as none."""

    tools: Annotated[ListOf[ToolBody] | None, AtMostTools] = None
    tool_choice: ToolChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    server_tools: bool | None = None
    server_tool_events: bool | None = None

    @model_validator(mode="after")
    def _tools_have_their_own_names(self) -> ToolsBody:
        if self.tools:
            check_own_names(
                (f"{path}.{tool.type}.name", _named(tool).name) for path, tool in self.offered
            )
        return self

    @property
    def offered(self) -> list[tuple[str, FunctionToolBody | CustomToolBody]]:
        """The tools that the model can call, each with its path."""
        return [
            (f"tools[{at}]", tool)
            for at, tool in enumerate(self.tools or ())
            if not isinstance(tool, DroppedTool)
        ]

    @property
    def dropped(self) -> tuple[str, ...]:
        return dropped_types(self.tools) if self.tools else ()

    def check_choice(self, servers: Iterable[ServerTool]) -> None:
        """Checks that `tool_choice` names known tools. `servers`: the server's own tools.

        Raises:
            InvalidRequest: it names another tool, or needs tools and there are none; or no tool
                can be called.
        """
        choice = self.tool_choice
        known: dict[str, str] = {_named(tool).name: tool.type for _, tool in self.offered}
        if self.server_tools is not False:
            known.update((tool.name, "function") for tool in servers)
        check_some_usable(self.dropped, bool(known))
        if choice in (None, "none", "auto"):
            return
        named = [(path, one.type, _named(one).name) for path, one in _chosen(choice)]
        check_chosen(
            bool(known),
            ((f"{path}.{kind}.name", name, kind, known.get(name)) for path, kind, name in named),
        )

    @property
    def domain_choice(self) -> ToolChoice:
        choice = self.tool_choice
        if choice is None:
            return AUTO
        names = tuple(_named(named).name for _, named in _chosen(choice)) or None
        if isinstance(choice, (NamedFunctionBody, NamedCustomBody)):
            return ToolChoice(mode=ToolMode.REQUIRED, allowed=names, is_named=True)
        if isinstance(choice, AllowedToolsBody):
            return ToolChoice(mode=ToolMode(choice.allowed_tools.mode), allowed=names)
        return ToolChoice(mode=ToolMode(choice))


def _named(
    body: FunctionToolBody | CustomToolBody | NamedFunctionBody | NamedCustomBody,
) -> FunctionBody | CustomBody | ToolNameBody:
    """The part of the body that has the tool's name."""
    if isinstance(body, (CustomToolBody, NamedCustomBody)):
        return body.custom
    return body.function


def _chosen(choice: object) -> list[tuple[str, NamedFunctionBody | NamedCustomBody]]:
    """Each tool that `tool_choice` names, with its path."""
    if isinstance(choice, (NamedFunctionBody, NamedCustomBody)):
        return [("tool_choice", choice)]
    if isinstance(choice, AllowedToolsBody):
        tools = enumerate(choice.allowed_tools.tools)
        return [(f"tool_choice.allowed_tools.tools[{at}]", tool) for at, tool in tools]
    return []
