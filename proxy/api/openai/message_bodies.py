"""The messages of a chat request, by role, and the check that each tool call in them has its result
and each result its call, as in OpenAI's API.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag
from pydantic_core import from_json

from proxy.api.http import json_shape
from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import (
    AnswerText,
    AtMostMessages,
    ImagePart,
    ListOf,
    Only,
    RequestBody,
    ResultText,
    Text,
    TextPart,
    UsersText,
    join_parts,
    type_of,
)
from proxy.domain.errors import ErrorCode, InvalidRequest, echoed, in_short
from proxy.domain.image import Image
from proxy.domain.request import Message
from proxy.domain.tools import ToolCall

Name = Annotated[str, StringConstraints(max_length=64)]  # aiperf sends an empty one
FunctionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]
# Names and ids of earlier calls are what a model wrote. To refuse odd ones would end the chat.
AsWritten = Annotated[str, StringConstraints(min_length=1)]
NO_OBJECT = "invalid_arguments"
DEEPEST = 100  # levels of arrays and objects in arguments
MOST_IMAGES = 16  # of one request


def as_object(text: str) -> str:
    """The arguments of an earlier call as a JSON object, whose members templates write as values.

    A model may have written nothing, a part of an object (cut off by the token limit), something
    else, or an object that nests too deep. What is not an object becomes the value of `NO_OBJECT`.
    """
    if text.strip() in ("", "null"):
        return "{}"
    return text if _is_object(text) else json.dumps({NO_OBJECT: text}, ensure_ascii=False)


def partial_object(text: str) -> dict[str, Any]:
    """The arguments of a call that this server answers; those that are complete, if the token limit
    has cut them, as in the SDKs.
    """
    try:
        found = from_json(text, allow_partial=True) if text.strip() else {}
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {NO_OBJECT: text}


def _is_object(text: str) -> bool:
    """Whether the text is a JSON object that can be parsed and written into a prompt."""
    if json_shape.exceeds_depth(text.encode(), DEEPEST):
        return False
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # fails if an escape is half a character
    except (ValueError, RecursionError):  # exceeds_depth does not see unclosed brackets
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
        Field(json_schema_extra={"enum": ["system", "developer"]}),
    ]
    content: Text
    name: Name | None = None

    def to_domain(self) -> Message:
        return Message(role=self.role, content=join_parts(self.content), name=self.name or None)


class UserBody(SpokenBody):
    """Its content may have images, which `to_domain` below reads."""

    role: Literal["user"]
    content: UsersText  # type: ignore[assignment]


class CalledFunctionBody(RequestBody):
    """`arguments` may be empty, but not missing. `parsed_arguments` (an SDK's) has no effect."""

    name: AsWritten
    arguments: Annotated[str, AfterValidator(as_object)]
    parsed_arguments: Any = None


class CallFields(RequestBody):
    """An earlier call of the model.

    All fields but the id have no effect: SDKs leave `index` from the stream that they accumulated;
    Gemini's API keeps signatures of thoughts in `extra_content`, LiteLLM in
    `provider_specific_fields`.
    """

    id: AsWritten
    index: int | None = None
    extra_content: Any = None
    provider_specific_fields: dict[str, Any] | None = None


class FunctionCallBody(CallFields):
    type: Annotated[Literal["function", "custom"], Only("function")]
    function: CalledFunctionBody

    def to_domain(self) -> ToolCall:
        function = self.function
        return ToolCall(id=self.id, name=function.name, arguments=function.arguments)


class CalledCustomBody(RequestBody):
    name: AsWritten
    input: str


class CustomCallBody(CallFields):
    type: Literal["custom"]
    custom: CalledCustomBody

    def to_domain(self) -> ToolCall:
        custom = self.custom
        return ToolCall(id=self.id, name=custom.name, arguments=custom.input, is_custom=True)


def kind_of_tool(given: Any) -> str:
    """The tag of what has the `type` of a tool: the tool, its name, or a call of it."""
    return "<custom>" if type_of(given) == "custom" else "<function>"


ToolCallBody = Annotated[
    Annotated[FunctionCallBody, Tag("<function>")] | Annotated[CustomCallBody, Tag("<custom>")],
    Discriminator(kind_of_tool),
]


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
    """Its content may be missing: a function may return nothing."""

    role: Literal["tool"]
    content: ResultText = ""
    tool_call_id: AsWritten
    name: AsWritten | None = None

    def to_domain(self) -> Message:
        return Message(
            role=self.role,
            content=join_parts(self.content),
            name=self.name,
            tool_call_id=self.tool_call_id,
        )


ROLE_TAGS = {"assistant": "<assistant>", "tool": "<tool>", "user": "<user>"}


def _role(given: Any) -> str:
    role = given.get("role") if isinstance(given, dict) else getattr(given, "role", None)
    return ROLE_TAGS.get(str(role), "<spoken>")


MessageBody = Annotated[
    Annotated[SpokenBody, Tag("<spoken>")]
    | Annotated[UserBody, Tag("<user>")]
    | Annotated[AssistantBody, Tag("<assistant>")]
    | Annotated[ToolResultBody, Tag("<tool>")],
    Discriminator(_role),
]


def to_domain(bodies: Sequence[MessageBody]) -> tuple[tuple[Message, ...], tuple[Image, ...]]:
    """The messages of a chat, and all of their images. Those of tools' results stand in a user's
    message behind them: templates show images only there.

    Raises:
        InvalidRequest: it has more than MOST_IMAGES.
    """
    messages, images = list[Message](), list[Image]()
    shown = 0  # images of the results before
    for at, body in enumerate(bodies):
        message = body.to_domain()
        is_result = isinstance(body, ToolResultBody)
        if shown and not is_result:
            messages.append(_showing(shown))
            shown = 0
        if isinstance(body, (UserBody, ToolResultBody)) and not isinstance(body.content, str):
            found = [
                part.to_domain(f"messages[{at}].content[{index}]")
                for index, part in enumerate(body.content)
                if isinstance(part, ImagePart)
            ]
            images += found
            if is_result:
                shown += len(found)
            elif found:
                parts = (part.text if isinstance(part, TextPart) else None for part in body.content)
                message = replace(message, parts=tuple(parts))
        messages.append(message)
    if shown:
        messages.append(_showing(shown))
    if len(images) > MOST_IMAGES:
        raise InvalidRequest(
            f"Invalid value for 'messages': at most {MOST_IMAGES} images are allowed, "
            f"{len(images)} are sent.",
            code=ErrorCode.INVALID_MESSAGES,
            param="messages",
        )
    return tuple(messages), tuple(images)


def _showing(count: int) -> Message:
    """The message of a user that has images of tools' results."""
    return Message(role="user", content="", parts=(None,) * count, result_images=count)


def check_tool_history(
    messages: Sequence[MessageBody], *, may_end_open: bool = False
) -> Sequence[MessageBody]:
    """Checks a history, and returns it.

    Ids must be unique within a message; later messages may use them again.

    may_end_open: the last calls need no results, because no answer is generated.

    Raises:
        FieldError: a result has no call, a call has no result or two, or calls share an id.
    """
    calls: dict[str, int] = {}  # of the last message with calls: id -> position of the call
    results: dict[str, int] = {}  # id -> position of the result's message
    called_at = 0
    for at, message in enumerate(messages):
        if isinstance(message, ToolResultBody):
            call_id, path = message.tool_call_id, f"messages[{at}].tool_call_id"
            if not calls:
                raise _wrong(
                    f"messages[{at}].role",
                    "Invalid parameter: messages with role 'tool' must be a response to a "
                    "preceding message with 'tool_calls'.",
                )
            if call_id not in calls:
                raise _wrong(
                    path,
                    f"Invalid parameter: 'tool_call_id' of {echoed(call_id)} not found in "
                    f"'tool_calls' of previous message (messages[{called_at}]).",
                )
            if call_id in results:
                raise _wrong(
                    path,
                    f"Invalid parameter: Duplicate value for 'tool_call_id' of {echoed(call_id)}, "
                    f"in messages[{results[call_id]}] and messages[{at}].",
                )
            results[call_id] = at
            continue
        if len(results) < len(calls):
            raise _unanswered(called_at, calls, results)
        calls, results, called_at = {}, {}, at
        if isinstance(message, AssistantBody):
            for number, call in enumerate(message.tool_calls or ()):
                if call.id in calls:
                    path = f"messages[{at}].tool_calls[{number}].id"
                    raise _wrong(
                        path, f"Invalid parameter: Duplicate value for {path!r}: {echoed(call.id)}."
                    )
                calls[call.id] = number
    if len(results) < len(calls) and not may_end_open:
        raise _unanswered(called_at, calls, results)
    return messages


def _unanswered(at: int, calls: dict[str, int], results: dict[str, int]) -> FieldError:
    missing = [one for one in calls if one not in results]
    return _wrong(
        f"messages[{at}].tool_calls[{calls[missing[0]]}].id",
        "An assistant message with 'tool_calls' must be followed by tool messages "
        "responding to each 'tool_call_id'. The following tool_call_ids did not have "
        f"response messages: {in_short(', '.join(missing))}",
    )


def _wrong(path: str, message: str) -> FieldError:
    return FieldError(path, message, code=ErrorCode.INVALID_MESSAGES)


Messages = Annotated[
    ListOf[MessageBody], Field(min_length=1), AfterValidator(check_tool_history), AtMostMessages
]
