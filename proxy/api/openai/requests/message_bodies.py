"""Messages of a chat request, by role."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag

from triton_openai.proxy.api.bodies import json_depth
from triton_openai.proxy.api.openai.requests.fields import (
    AnswerText,
    AnyText,
    RequestBody,
    Text,
    joined,
)
from triton_openai.proxy.domain.request import Message
from triton_openai.proxy.domain.tools import ToolCall

Name = Annotated[str, StringConstraints(max_length=64)]  # an empty one says nothing: aiperf's
FunctionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]
# Names and ids in former calls are as a model wrote them: refused, they would end the chat.
AsWritten = Annotated[str, StringConstraints(min_length=1)]
NO_OBJECT = "invalid_arguments"
DEEPEST = 100  # levels of arrays and objects in arguments


def _as_object(text: str) -> str:
    """Arguments of a former call as a JSON object: templates write its members as values.

    A model may have written none at all, a part (the token limit cut it off), no object, or one
    that nests without end.
    """
    if text.strip() in ("", "null"):
        return "{}"
    return text if _is_object(text) else json.dumps({NO_OBJECT: text}, ensure_ascii=False)


def _is_object(text: str) -> bool:
    """Whether it can be read, and written into a prompt."""
    if json_depth.exceeds(text.encode(), DEEPEST):
        return False
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # an escape may be half a character
    except (ValueError, RecursionError):  # open brackets have no depth yet
        return False
    return isinstance(found, dict)


class MessageFields(RequestBody):
    """What clients send along in any message, without effect.

    `id` is a client's own name for the message. `cache_control` marks the end of a prefix that
    Anthropic's API would cache; prefixes are cached here without it.
    """

    id: Any = None
    cache_control: Any = None


class SpokenBody(MessageFields):
    role: Annotated[
        Literal["system", "developer", "user", "assistant", "tool"],  # all, for the error message
        Field(json_schema_extra={"enum": ["system", "developer", "user"]}),
    ]
    content: Text
    name: Name | None = None

    def to_domain(self) -> Message:
        return Message(role=self.role, content=joined(self.content), name=self.name or None)


class CalledFunctionBody(RequestBody):
    """`arguments` may be empty, but not missing. `parsed_arguments`: what an SDK made of them."""

    name: AsWritten
    arguments: Annotated[str, AfterValidator(_as_object)]
    parsed_arguments: Any = None


class ToolCallBody(RequestBody):
    """The last three fields have no effect: `index` is of the stream that an SDK added up,
    `extra_content` is where Gemini's API keeps signatures of thoughts, and LiteLLM keeps them in
    `provider_specific_fields`.
    """

    id: AsWritten
    type: Literal["function"]
    function: CalledFunctionBody
    index: int | None = None
    extra_content: Any = None
    provider_specific_fields: dict[str, Any] | None = None

    def to_domain(self) -> ToolCall:
        function = self.function
        return ToolCall(id=self.id, name=function.name, arguments=function.arguments)


class AssistantBody(MessageFields):
    """An answer of before, as it came: text, reasoning, calls. Reasoning may come by both names.

    It may say nothing: of an answer that was all reasoning clients keep a content of null.
    The last six fields are of answers only: SDKs send them back, no template has a use for them.
    LiteLLM keeps in `provider_specific_fields` what it has no field of its own for, such as a
    `refusal` of null. `reasoning_details` is OpenRouter's form of `reasoning`, which comes with
    it; `extra_content` is Gemini's.
    """

    role: Literal["assistant"]
    content: AnswerText | None = None
    name: Name | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ToolCallBody], Field(max_length=128)] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: Any = None
    extra_content: Any = None
    annotations: list[Any] | None = None
    parsed: Any = None
    server_tool_calls: list[Any] | None = None
    provider_specific_fields: dict[str, Any] | None = None

    def to_domain(self) -> Message:
        return Message(
            role=self.role,
            content=self._text,
            name=self.name or None,
            tool_calls=tuple(call.to_domain() for call in self.tool_calls or ()),
            reasoning=self.reasoning or self.reasoning_content,
        )

    @property
    def _text(self) -> str | None:
        """A refusal was text. None only beside calls: elsewhere templates would write the word."""
        if self.content is not None:
            return joined(self.content)
        return self.refusal if self.refusal or self.tool_calls else ""


class ToolResultBody(MessageFields):
    role: Literal["tool"]
    content: AnyText
    tool_call_id: AsWritten
    name: AsWritten | None = None

    def to_domain(self) -> Message:
        return Message(
            role=self.role,
            content=joined(self.content),
            name=self.name,
            tool_call_id=self.tool_call_id,
        )


def _role(given: Any) -> str:
    role = given.get("role") if isinstance(given, dict) else None
    return {"assistant": "<assistant>", "tool": "<tool>"}.get(str(role), "<spoken>")


MessageBody = Annotated[
    Annotated[SpokenBody, Tag("<spoken>")]
    | Annotated[AssistantBody, Tag("<assistant>")]
    | Annotated[ToolResultBody, Tag("<tool>")],
    Discriminator(_role),
]
