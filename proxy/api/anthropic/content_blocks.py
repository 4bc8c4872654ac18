"""Messages and their content blocks, as callers send them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema
from pydantic import model_validator as validator

from proxy.api.anthropic.tool_bodies import ToolChange
from proxy.api.openai.field_types import (
    ListOf,
    Only,
    RequestBody,
    checked_image,
    only_of_type,
    text_or_list,
    type_of,
)
from proxy.api.openai.foreign_items import ForeignItem
from proxy.api.openai.message_bodies import AsWritten

Effort = Literal["low", "medium", "high", "xhigh", "max"]
# A hint where a cached prefix should end. Prefixes are cached without it, so it has no effect.
Hint = Any


class Block(RequestBody):
    cache_control: Hint = None


class TextBlock(Block):
    """`citations` come back from earlier answers of other servers, and have no effect."""

    type: Literal["text"]
    text: str
    citations: ListOf[dict[str, Any]] | None = None

    @validator(mode="before")
    @classmethod
    def _is_text(cls, given: Any) -> Any:
        """A block of a kind that its message cannot have is checked as a text."""
        return only_of_type(
            given,
            "a block of type {} is not supported by this server here: send its text in a block of "
            "type 'text'",
            "text",
        )


class Base64Source(RequestBody):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str

    @validator(mode="after")
    def _is_image(self) -> Base64Source:
        checked_image(self.url)
        return self

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


class UrlSource(RequestBody):
    type: Literal["url"]
    url: Annotated[str, AfterValidator(checked_image)]


class ImageBlock(Block):
    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource, Field(discriminator="type")]


class ThinkingBlock(Block):
    """Reasoning of an earlier answer. Its signature is not checked: it may be another server's."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Block):
    """Reasoning that only the server that wrote it can read. It has no effect here."""

    type: Literal["redacted_thinking"]
    data: str


def _as_json(given: Any) -> str:
    """The text that the chat template reads, made while the body is checked: it may be large."""
    if not isinstance(given, dict):
        raise ValueError("must be an object")
    return json.dumps(given, ensure_ascii=False)


class ToolUseBlock(Block):
    """A call of an earlier answer; `caller`, the model or a server tool, has no effect."""

    type: Literal["tool_use"]
    id: AsWritten
    name: AsWritten
    input: Annotated[str, BeforeValidator(_as_json), WithJsonSchema({"type": "object"})]
    caller: dict[str, Any] | None = None


class ToolReferenceBlock(Block):
    """The name of a tool that the caller's own search has found."""

    type: Literal["tool_reference"]
    tool_name: str

    @property
    def text(self) -> str:
        return self.tool_name


CHANGES = ("tool_addition", "tool_removal")
TEXT_SOURCES = ("text", "content")  # of documents
DOCUMENT = "<document>\n{}\n</document>\n"


def _kind(*kinds: str, is_foreign: Callable[[str], bool] = lambda kind: False) -> Discriminator:
    """is_foreign: whether a block of another type becomes a text; else it is refused."""

    def tag(given: Any) -> str:
        kind = given.get("type") if isinstance(given, dict) else None
        if kind in CHANGES:
            return "<change>"
        if kind in kinds and (kind != "document" or type_of(given.get("source")) in TEXT_SOURCES):
            return f"<{kind}>"
        if isinstance(kind, str) and kind != "text" and is_foreign(kind):
            return "<foreign>"
        return "<text>"

    return Discriminator(tag)


Text = Annotated[TextBlock, Tag("<text>")]
Image = Annotated[ImageBlock, Tag("<image>")]
Change = Annotated[ToolChange, Tag("<change>")]
Foreign = Annotated[ForeignItem, Tag("<foreign>")]
Words = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[ListOf[TextBlock], Tag("<list>")],
    Discriminator(text_or_list),
]


class PlainTextSource(RequestBody):
    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: str


class BlocksSource(RequestBody):
    type: Literal["content"]
    content: Words


class Citations(RequestBody):
    enabled: Annotated[bool, Only(False)] | None = None


class DocumentBlock(Block):
    """A document that is text. A PDF is a block of an unknown type: nothing here reads it."""

    type: Literal["document"]
    source: Annotated[PlainTextSource | BlocksSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None
    citations: Citations | None = None

    @property
    def text(self) -> str:
        if isinstance(self.source, PlainTextSource):
            said = self.source.data
        elif isinstance(self.source.content, str):
            said = self.source.content
        else:
            said = "".join(block.text for block in self.source.content)
        return DOCUMENT.format("\n".join(filter(None, (self.title, self.context, said))))


Document = Annotated[DocumentBlock, Tag("<document>")]
ResultPart = Annotated[
    Text
    | Image
    | Document
    | Annotated[ToolReferenceBlock, Tag("<tool_reference>")]
    | Foreign
    | Change,
    _kind("image", "document", "tool_reference", is_foreign=bool),
]
SystemWords = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[ListOf[Annotated[Text | Change, _kind()]], Tag("<list>")],
    Discriminator(text_or_list),
]


class ToolResultBlock(Block):
    type: Literal["tool_result"]
    tool_use_id: AsWritten
    content: (
        Annotated[
            Annotated[str, Tag("<text>")] | Annotated[ListOf[ResultPart], Tag("<list>")],
            Discriminator(text_or_list),
        ]
        | None
    ) = None
    is_error: bool | None = None


UserPart = Annotated[
    Text | Image | Document | Annotated[ToolResultBlock, Tag("<tool_result>")] | Change | Foreign,
    _kind("image", "document", "tool_result", is_foreign=lambda one: one.endswith("_tool_result")),
]
AssistantPart = Annotated[
    Text
    | Annotated[ToolUseBlock, Tag("<tool_use>")]
    | Annotated[ThinkingBlock, Tag("<thinking>")]
    | Annotated[RedactedThinkingBlock, Tag("<redacted_thinking>")]
    | Change
    | Foreign,
    _kind("tool_use", "thinking", "redacted_thinking", is_foreign=bool),
]
Part = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | ToolResultBlock
    | ToolUseBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolChange
    | ForeignItem
)


class UserMessage(RequestBody):
    role: Annotated[
        Literal["user", "assistant", "system"], Field(json_schema_extra={"enum": ["user"]})
    ]
    content: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[ListOf[UserPart], Tag("<list>")],
        Discriminator(text_or_list),
    ]


class AssistantMessage(RequestBody):
    role: Literal["assistant"]
    content: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[ListOf[AssistantPart], Tag("<list>")],
        Discriminator(text_or_list),
    ]


class MessageOutputConfig(RequestBody):
    effort: Effort | None = None


class SystemMessage(RequestBody):
    """Instructions in the middle of a chat, changes of the tools, or the effort from here on, with
    no content. clear_at: "next_user_message" for what holds for the user's turn before it alone.
    """

    role: Literal["system"]
    content: SystemWords
    output_config: MessageOutputConfig | None = None
    clear_at: Literal["next_user_message", "never"] | None = None


def _role(given: Any) -> str:
    role = given.get("role") if isinstance(given, dict) else getattr(given, "role", None)
    return f"<{role}>" if role in ("assistant", "system") else "<user>"


AnyMessage = UserMessage | AssistantMessage | SystemMessage
MessageBody = Annotated[
    Annotated[UserMessage, Tag("<user>")]
    | Annotated[AssistantMessage, Tag("<assistant>")]
    | Annotated[SystemMessage, Tag("<system>")],
    Discriminator(_role),
]
