"""The tools of a body, and what messages in the middle of a chat change about them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, StringConstraints, Tag

from proxy.api.openai.field_types import DroppedTool, ListOf, Only, RequestBody, type_of
from proxy.domain.tools import Tool

ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]{1,128}$")]
# Claude Code offers it to keep tools deferred at Anthropic's API. The model must never call it.
PLACEHOLDER = "DeferredToolPlaceholder"


EXAMPLES = "Examples of its input:"


class CustomTool(RequestBody):
    """A tool of the caller's, whose description gets the examples. The last four fields have no
    effect: all tools are known to the model from the beginning, and inputs are streamed as they
    come.
    """

    name: ToolName
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    description: str | None = None
    strict: bool | None = None
    input_examples: ListOf[dict[str, Any]] | None = None
    allowed_callers: ListOf[Annotated[str, Only("direct")]] | None = None
    defer_loading: bool | None = None
    eager_input_streaming: bool | None = None
    cache_control: Any = None

    def to_domain(self) -> Tool:
        examples = [json.dumps(one, ensure_ascii=False) for one in self.input_examples or ()]
        words = "\n".join((EXAMPLES, *examples)) if examples else ""
        return Tool(
            name=self.name,
            description="\n\n".join(filter(None, (self.description, words))) or None,
            parameters=self.input_schema,
            is_strict=bool(self.strict),
        )


def _kind(given: Any) -> str:
    kind = type_of(given)
    return "<custom>" if kind == "custom" or not isinstance(kind, str) else "<dropped>"


AnyTool = Annotated[
    Annotated[CustomTool, Tag("<custom>")] | Annotated[DroppedTool, Tag("<dropped>")],
    Discriminator(_kind),
]


class ToolReference(RequestBody):
    type: Literal["tool_reference"]
    name: ToolName


class ToolDefinition(RequestBody):
    type: Literal["tool_definition"]
    definition: AnyTool


def _kind_of_change(given: Any) -> str:
    kind = type_of(given)
    return f"<{kind}>" if kind in ("tool_reference", "tool_definition") else "<dropped>"


class ToolChange(RequestBody):
    """A tool that the model may call, or may not, from here on."""

    type: Literal["tool_addition", "tool_removal"]
    tool: Annotated[
        Annotated[ToolReference, Tag("<tool_reference>")]
        | Annotated[ToolDefinition, Tag("<tool_definition>")]
        | Annotated[DroppedTool, Tag("<dropped>")],
        Discriminator(_kind_of_change),
    ]
    cache_control: Any = None


def offered(
    tools: Sequence[CustomTool | DroppedTool], changes: Iterable[tuple[str, ToolChange]]
) -> Iterator[tuple[str, CustomTool | DroppedTool]]:
    """All tools at the end of the chat, each with its path. changes: with theirs, in order."""
    known = {
        one.name: (f"tools[{at}]", one)
        for at, one in enumerate(tools)
        if isinstance(one, CustomTool) and one.name != PLACEHOLDER
    }
    others = [(f"tools[{at}]", one) for at, one in enumerate(tools) if isinstance(one, DroppedTool)]
    removed = dict[str, bool]()
    for path, change in changes:
        match change.tool:
            case ToolReference(name=name):
                removed[name] = change.type == "tool_removal"
            case ToolDefinition(definition=CustomTool() as tool):
                known[tool.name] = f"{path}.tool.definition", tool
                removed[tool.name] = False
            case ToolDefinition(definition=DroppedTool() as tool):
                others.append((path, tool))
    yield from (one for name, one in known.items() if not removed.get(name))
    yield from others
