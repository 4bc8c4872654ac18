"""The fields of a chat request about tools: their definitions, and which the model may call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import ListOf, Only, RequestBody
from proxy.api.openai.message_bodies import FunctionName
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.server_tools import ServerTool
from proxy.domain.tools import Tool, ToolChoice, ToolMode

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


class ToolBody(RequestBody):
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


class FunctionNameBody(RequestBody):
    name: FunctionName


class NamedToolBody(RequestBody):
    type: Literal["function"]
    function: FunctionNameBody


class AllowedBody(RequestBody):
    mode: Literal["auto", "required"]
    tools: Annotated[ListOf[NamedToolBody], Field(min_length=1)]


class AllowedToolsBody(RequestBody):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedBody


def _kind_of_choice(given: Any) -> str:
    if not isinstance(given, dict):
        return "<mode>"
    return "<allowed>" if given.get("type") == "allowed_tools" else "<named>"


ToolChoiceBody = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<mode>")]
    | Annotated[NamedToolBody, Tag("<named>")]
    | Annotated[AllowedToolsBody, Tag("<allowed>")],
    Discriminator(_kind_of_choice),
]


class ToolsBody(RequestBody):
    """The fields of a chat about tools. An empty list of tools is the same as none."""

    tools: ListOf[ToolBody] | None = None
    tool_choice: ToolChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    server_tools: bool | None = None
    server_tool_events: bool | None = None

    @model_validator(mode="after")
    def _tools_have_their_own_names(self) -> ToolsBody:
        seen: set[str] = set()
        for at, tool in enumerate(self.tools or ()):
            if tool.function.name in seen:
                path = f"tools[{at}].function.name"
                raise FieldError(
                    path, f"'{path}' is {tool.function.name!r}, the name of an earlier tool"
                )
            seen.add(tool.function.name)
        return self

    def check_choice(self, servers: Iterable[ServerTool]) -> None:
        """Checks that `tool_choice` names known tools. `servers`: the server's own tools.

        Raises:
            InvalidRequest: it names another tool, or needs tools and there are none.
        """
        choice = self.tool_choice
        if choice in (None, "none", "auto"):
            return
        known = {tool.function.name for tool in self.tools or ()}
        if self.server_tools is not False:
            known.update(tool.name for tool in servers)
        if not known:
            raise _wrong("tool_choice", "'tool_choice' is only allowed when 'tools' are given")
        for path, name in _chosen(choice):
            if name not in known:
                raise _wrong(path, f"'{path}' is {name!r}, which is not one of 'tools'")

    @property
    def domain_choice(self) -> ToolChoice:
        choice = self.tool_choice
        if choice is None:
            return AUTO
        names = tuple(name for _, name in _chosen(choice)) or None
        if isinstance(choice, NamedToolBody):
            return ToolChoice(mode=ToolMode.REQUIRED, allowed=names, is_named=True)
        if isinstance(choice, AllowedToolsBody):
            return ToolChoice(mode=ToolMode(choice.allowed_tools.mode), allowed=names)
        return ToolChoice(mode=ToolMode(choice))


def _wrong(path: str, message: str) -> InvalidRequest:
    return InvalidRequest(message, code=ErrorCode.INVALID_PARAMETER, param=path)


def _chosen(choice: object) -> list[tuple[str, str]]:
    """Path and value of each tool's name in `tool_choice`."""
    if isinstance(choice, NamedToolBody):
        return [("tool_choice.function.name", choice.function.name)]
    if isinstance(choice, AllowedToolsBody):
        return [
            (f"tool_choice.allowed_tools.tools[{at}].function.name", tool.function.name)
            for at, tool in enumerate(choice.allowed_tools.tools)
        ]
    return []
