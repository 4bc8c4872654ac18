"""The items of a request's input: messages, calls of tools and their outputs, reasoning.

All of these come back from earlier answers, too. A conversation may have begun at another server:
items that only its own tools write become text.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import (
    ListOf,
    Only,
    PartBody,
    RequestBody,
    checked_image,
    only_of_type,
    text_or_list,
    type_of,
)
from proxy.api.openai.foreign_items import ForeignItem
from proxy.api.openai.message_bodies import AsWritten, as_object
from proxy.api.responses.tool_bodies import AnyTool
from proxy.domain.errors import ErrorCode

Status = Literal["in_progress", "completed", "incomplete", "failed"]
ItemId = Annotated[str, StringConstraints(min_length=1, max_length=128)]

TextKind = Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]


class InputText(PartBody):
    """A text, of whoever wrote it. The last two fields are an answer's, and have no effect."""

    type: TextKind
    text: str
    annotations: ListOf[dict[str, Any]] | None = None
    logprobs: ListOf[dict[str, Any]] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, given: Any) -> Any:
        """A part of a kind that its item cannot have is checked as a text."""
        return only_of_type(
            given,
            "a part of type {} is not supported by this server here: send its text in a part of "
            "type 'input_text'",
            *get_args(TextKind),
        )


class InputImage(PartBody):
    """`auto` and `high` are what models do with every image: they get it as it is."""

    type: Literal["input_image"]
    image_url: Annotated[str, AfterValidator(checked_image)]
    detail: (
        Annotated[Literal["auto", "low", "high", "original"], Only("auto", "high", "original")]
        | None
    ) = None


class Refusal(RequestBody):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


def _kind_of_part(given: Any) -> str:
    kind = type_of(given)
    return f"<{kind}>" if kind in ("input_image", "refusal") else "<text>"


Text = Annotated[InputText, Tag("<text>")]
Part = Annotated[
    Text | Annotated[InputImage, Tag("<input_image>")] | Annotated[Refusal, Tag("<refusal>")],
    Discriminator(_kind_of_part),
]
Content = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[ListOf[Part], Tag("<list>")],
    Discriminator(text_or_list),
]


class Item(RequestBody):
    """Fields of any item. They come back from answers; only item_reference reads an id."""

    id: ItemId | None = None
    status: Status | None = None


class MessageItem(Item):
    """`phase` is a label of OpenAI's own models, and has no effect."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    phase: Literal["commentary", "final_answer"] | None = None

    @model_validator(mode="after")
    def _images_are_the_users(self) -> MessageItem:
        parts = () if isinstance(self.content, str) else self.content
        if self.role != "user" and any(isinstance(part, InputImage) for part in parts):
            raise FieldError(
                None,
                "images are supported in messages of the role 'user', and in outputs of tools "
                f"(given: {self.role!r})",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return self


class CallItem(Item):
    """`caller`, which says who called, has no effect."""

    type: Literal["function_call"]
    call_id: AsWritten
    name: AsWritten
    arguments: Annotated[str, AfterValidator(as_object)]
    caller: dict[str, Any] | None = None
    namespace: str | None = None


class CustomCallItem(Item):
    type: Literal["custom_tool_call"]
    call_id: AsWritten
    name: AsWritten
    input: str
    caller: dict[str, Any] | None = None
    namespace: str | None = None


class OutputItem(Item):
    """`name`, `namespace` and `caller` have no effect: the call has the names."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: AsWritten
    output: Content
    name: str | None = None
    namespace: str | None = None
    caller: dict[str, Any] | None = None


class ServerCallItem(Item):
    """A call of a tool of the server's own, with its result, as an earlier answer has it."""

    type: Literal["mcp_call"]
    id: ItemId
    name: AsWritten
    arguments: Annotated[str, AfterValidator(as_object)]
    server_label: str | None = None
    output: str | None = None
    error: Any = None
    approval_request_id: str | None = None


class ReasoningItem(Item):
    """Reasoning of an earlier answer: its content, or what stands for it where a client keeps only
    `encrypted_content`. A summary is not what the model thought, so it has no effect.
    """

    type: Literal["reasoning"]
    summary: ListOf[Text] | None = None
    content: ListOf[Text] | None = None
    encrypted_content: str | None = None

    @property
    def text(self) -> str:
        if self.content:
            return "".join(part.text for part in self.content)
        return opened(self.encrypted_content) or ""


class CompactionItem(Item):
    """A summary that /v1/responses/compact made of a conversation."""

    type: Literal["compaction"]
    encrypted_content: str
    created_by: str | None = None

    @model_validator(mode="after")
    def _is_ours(self) -> CompactionItem:
        if opened(self.encrypted_content) is None:
            raise FieldError(
                None, "its 'encrypted_content' was not made by /v1/responses/compact of this server"
            )
        return self


class SearchCallItem(Item):
    """A call of the caller's own search for tools. One that a server ran has no effect."""

    type: Literal["tool_search_call"]
    call_id: AsWritten | None = None
    execution: Literal["server", "client"] | None = None
    arguments: Any = None
    created_by: str | None = None


class SearchOutputItem(Item):
    """Tools that a search has found: the model may call them from here on."""

    type: Literal["tool_search_output"]
    call_id: AsWritten | None = None
    execution: Literal["server", "client"] | None = None
    tools: ListOf[AnyTool]
    created_by: str | None = None


class AdditionalToolsItem(Item):
    """Tools in addition to the body's."""

    type: Literal["additional_tools"]
    role: str | None = None
    tools: ListOf[AnyTool]


class ReferenceItem(RequestBody):
    """An item of a kept response. The type may be missing."""

    type: Literal["item_reference"] | None = None
    id: ItemId


KINDS = {
    "message": "<message>",
    "function_call": "<function_call>",
    "custom_tool_call": "<custom_tool_call>",
    "function_call_output": "<output>",
    "custom_tool_call_output": "<output>",
    "mcp_call": "<mcp_call>",
    "reasoning": "<reasoning>",
    "compaction": "<compaction>",
    "tool_search_call": "<search_call>",
    "tool_search_output": "<search_output>",
    "additional_tools": "<additional>",
    "item_reference": "<reference>",
}


def _kind(given: Any) -> str | None:
    """The tag of a union's member. Tags in angle brackets are left out of error paths."""
    kind = type_of(given)
    if kind is None:
        is_reference = isinstance(given, dict) and "id" in given and "role" not in given
        return "<reference>" if is_reference else "<message>"
    return KINDS.get(kind, "<other>") if isinstance(kind, str) else None


InputItem = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[CallItem, Tag("<function_call>")]
    | Annotated[CustomCallItem, Tag("<custom_tool_call>")]
    | Annotated[OutputItem, Tag("<output>")]
    | Annotated[ServerCallItem, Tag("<mcp_call>")]
    | Annotated[ReasoningItem, Tag("<reasoning>")]
    | Annotated[CompactionItem, Tag("<compaction>")]
    | Annotated[SearchCallItem, Tag("<search_call>")]
    | Annotated[SearchOutputItem, Tag("<search_output>")]
    | Annotated[AdditionalToolsItem, Tag("<additional>")]
    | Annotated[ReferenceItem, Tag("<reference>")]
    | Annotated[ForeignItem, Tag("<other>")],
    Discriminator(
        _kind,
        custom_error_type="input_item_type",
        custom_error_message="must have a 'type' that is a text, such as message",
    ),
]
AnyItem = (
    MessageItem
    | CallItem
    | CustomCallItem
    | OutputItem
    | ServerCallItem
    | ReasoningItem
    | CompactionItem
    | SearchCallItem
    | SearchOutputItem
    | AdditionalToolsItem
    | ForeignItem
)
Items = Annotated[ListOf[InputItem], Field(min_length=1)]
_SEAL = "toai1:"


def items_of(given: str | list[AnyItem | ReferenceItem] | None) -> list[AnyItem | ReferenceItem]:
    """Returns the items; a text becomes one message of the user."""
    if isinstance(given, str):
        return [MessageItem(role="user", content=given)]
    return given or []


def sealed(text: str) -> str:
    """`encrypted_content`: opaque to clients, which send it back. It is encoded, not encrypted."""
    return base64.b64encode(f"{_SEAL}{text}".encode()).decode()


def opened(content: str | None) -> str | None:
    """The text of `sealed`; None for what another server wrote."""
    try:
        text = base64.b64decode(content or "", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return text.removeprefix(_SEAL) if text.startswith(_SEAL) else None
