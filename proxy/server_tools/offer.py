"""Which tools a request's model is offered, round by round."""

from __future__ import annotations

from dataclasses import replace

from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.request import ChatPrompt, GenerationRequest
from triton_openai.proxy.domain.tools import ToolChoice, ToolMode


def offered(request: GenerationRequest, card: ModelCard) -> GenerationRequest:
    """With the tools of the model's own beside the caller's. An answer that is to be of a form
    gets them only where the caller asks for them.

    Raises:
        InvalidRequest: both have one of the same name, or the model has none and the caller asks
            for them.
    """
    ours = card.server_tools.tools
    if not isinstance(request.prompt, ChatPrompt):
        return request
    if not ours:
        _refuse_what_has_no_meaning(request, card)
        return request
    default = request.constraint is None
    is_wanted = default if request.offers_server_tools is None else request.offers_server_tools
    if not is_wanted or request.tool_choice.mode is ToolMode.NONE:
        return request
    _check_names(request, {tool.name for tool in ours})
    return replace(request, tools=(*request.tools, *(tool.offered for tool in ours)))


def names_offered(request: GenerationRequest) -> frozenset[str]:
    """The tools of our own that the model may call."""
    return frozenset(tool.name for tool in request.callable_tools if tool.runs_here)


def after_calls(request: GenerationRequest) -> GenerationRequest:
    """What had to be called has been: the model may answer now."""
    choice = request.tool_choice
    allowed = None if choice.is_named else choice.allowed
    return replace(request, tool_choice=ToolChoice(allowed=allowed))


def without_ours(request: GenerationRequest) -> GenerationRequest:
    """The caller's tools only; a call to another is text."""
    tools = tuple(tool for tool in request.callable_tools if not tool.runs_here)
    names = tuple(tool.name for tool in tools)
    return replace(request, tools=tools, tool_choice=ToolChoice(allowed=names or None))


def _refuse_what_has_no_meaning(request: GenerationRequest, card: ModelCard) -> None:
    asked = {
        "server_tools": request.offers_server_tools,
        "server_tool_events": request.reports_server_calls,
    }
    for name, is_asked in asked.items():
        if is_asked:
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
