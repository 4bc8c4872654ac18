"""Decides which tools a request offers to the model, in each round.

Called by the service for the first round, and by `tool_loop` for later ones.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.model import ModelCard
from proxy.domain.request import ChatPrompt, GenerationRequest
from proxy.domain.tools import ToolChoice, ToolMode


def offer_server_tools(request: GenerationRequest, card: ModelCard) -> GenerationRequest:
    """Adds the model's server tools to the caller's tools of a chat.

    A request with `tool_choice` none does not get them, and one with a constraint on its answer
    only if the caller asks for them.

    Raises:
        InvalidRequest: a caller's tool has the name of a server tool, or the caller asks for
            server tools and the model has none.
    """
    ours = card.server_tools.tools
    if not isinstance(request.prompt, ChatPrompt):
        return request
    if not ours:
        _refuse_server_tool_fields(request, card)
        return request
    default = request.constraint is None
    is_wanted = default if request.offers_server_tools is None else request.offers_server_tools
    if not is_wanted or request.tool_choice.mode is ToolMode.NONE:
        return request
    _check_names(request, {tool.name for tool in ours})
    return replace(request, tools=(*request.tools, *(tool.offered for tool in ours)))


def server_tool_names(request: GenerationRequest) -> frozenset[str]:
    """Names of the server tools that the model may call."""
    return frozenset(tool.name for tool in request.callable_tools if tool.runs_here)


def allow_answer(request: GenerationRequest) -> GenerationRequest:
    """Makes tool calls optional after the model has called, so that it may answer.

    A tool that the caller named alone no longer excludes the others; a list of allowed tools does.
    """
    choice = request.tool_choice
    allowed = None if choice.is_named else choice.allowed
    return replace(request, tool_choice=ToolChoice(allowed=allowed))


def withdraw_server_tools(request: GenerationRequest) -> GenerationRequest:
    """Leaves only the caller's tools that may be called; a call of any other is then text."""
    tools = tuple(tool for tool in request.callable_tools if not tool.runs_here)
    names = tuple(tool.name for tool in tools)
    return replace(request, tools=tools, tool_choice=ToolChoice(allowed=names or None))


def _refuse_server_tool_fields(request: GenerationRequest, card: ModelCard) -> None:
    given = {
        "server_tools": request.offers_server_tools,
        "server_tool_events": request.reports_server_calls,
    }
    for name, is_on in given.items():
        if is_on:
            raise InvalidRequest(
                f"The model {card.name!r} has no tools that the server runs.",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
                param=name,
            )


def _check_names(request: GenerationRequest, ours: set[str]) -> None:
    for at, tool in enumerate(request.tools):
        if tool.name in ours:
            path = f"tools[{at}].function.name"
            raise InvalidRequest(
                f"'{path}' is {tool.name!r}, as a tool's of this server is: rename yours, or leave "
                "the server's out with 'server_tools': false.",
                code=ErrorCode.INVALID_PARAMETER,
                param=path,
            )
