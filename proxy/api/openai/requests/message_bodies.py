"""The messages of a chat request, by role."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag

from proxy.api.bodies import json_depth
from proxy.api.openai.requests.field_types import (
    AnswerText,
    AnyText,
    RequestBody,
    Text,
    join_parts,
)
from proxy.domain.request import Message
from proxy.domain.tools import ToolCall

Name = Annotated[str, StringConstraints(max_length=64)]  # aiperf sends an empty one
FunctionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]
# Names and ids of earlier calls are what a model wrote. To refuse odd ones would end the chat.
AsWritten = Annotated[str, StringConstraints(min_length=1)]
NO_OBJECT = "invalid_arguments"
DEEPEST = 100  # levels of arrays and objects in arguments


def _as_object(text: str) -> str:
    """The arguments of an earlier call as a JSON object, whose members templates write as values.

    A model may have written nothing, a part of an object (cut off by the token limit), something
    else, or an object that nests too deep. What is not an object becomes the value of `NO_OBJECT`.
    """
    if text.strip() in ("", "null"):
        return "{}"
    return text if _is_object(text) else json.dumps({NO_OBJECT: text}, ensure_ascii=False)


def _is_object(text: str) -> bool:
    """Whether the text is a JSON object that can be parsed and written into a prompt."""
    if json_depth.exceeds(text.encode(), DEEPEST):
        return False
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # fails if an escape is half a character
    except (ValueError, RecursionError):  # json_depth does not see unclosed brackets
        return False
    return isinstance(found, dict)


class MessageFields(RequestBody):
    """Fields that clients send in any message, and that have no effect.

    `id` is a client's own name for the message. `cache_control` marks the end of a prefix that
    Anthropic's API would cache; this server caches prefixes without it.
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
        return Message(role=self.role, content=join_parts(self.content), name=self.name or None)


class CalledFunctionBody(RequestBody):
    """`arguments` may be empty, but not missing. `parsed_arguments` (an SDK's) has no effect."""

    name: AsWritten
    arguments: Annotated[str, AfterValidator(_as_object)]
    parsed_arguments: Any = None


class ToolCallBody(RequestBody):
    """An earlier call of the model.

    The last three fields have no effect: SDKs leave `index` from the stream that they accumulated;
    Gemini's API keeps signatures of thoughts in `extra_content`, LiteLLM in
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
    """An earlier answer of the model: text, reasoning (under either name), calls.

    It may be empty: if an answer was only reasoning, clients keep a content of null. The last six
    fields have no effect: SDKs copy them from answers, and no template uses them. LiteLLM puts
    other servers' fields into `provider_specific_fields`. `reasoning_details` is OpenRouter's form
    of `reasoning` and comes together with it; `extra_content` is Gemini's.
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
        """The text or the refusal. None only with calls: else templates would write "None"."""
        if self.content is not None:
            return join_parts(self.content)
        return self.refusal if self.refusal or self.tool_calls else ""


class ToolResultBody(MessageFields):
    role: Literal["tool"]
    content: AnyText
    tool_call_id: AsWritten
    name: AsWritten | None = None

    def to_domain(self) -> Message:
        return Message(
            role=self.role,
            content=join_parts(self.content),
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
