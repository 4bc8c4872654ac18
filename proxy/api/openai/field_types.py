"""The base class of all bodies, and types of fields with their ranges, which bodies share."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from proxy.api.http.known_bodies import Rest
from proxy.api.http.validation_errors import FieldError
from proxy.domain.errors import ErrorCode, InvalidRequest, unsupported
from proxy.domain.image import MEDIA_TYPES, Image, media_type

Json = dict[str, Any]
INT32_MAX = 2**31 - 1
UNKNOWN_AT_MOST = 50
NULL = {"type": "null"}

Item = TypeVar("Item")
Key = TypeVar("Key")
SLICE = 100
MOST_MESSAGES, MOST_TOOLS = 2_048, 128


def _in_slices(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Validates a dict slice by slice, up to the first slice with an error."""
    if not isinstance(given, dict):
        return check(given)
    items = iter(given.items())
    found: dict[Any, Any] = {}
    while part := dict(islice(items, SLICE)):
        found |= check(part)
    return found


# A body with a million mistakes would cost a gigabyte of errors. Some versions of pydantic in
# NVIDIA's containers do not support `fail_fast` for a dict.
ListOf = Annotated[list[Item], Field(fail_fast=True)]
DictOf = Annotated[dict[Key, Item], WrapValidator(_in_slices)]


class RequestBody(BaseModel):
    """The base of all bodies: refuses unknown fields by name, and treats null as not given."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, given: Any, info: ValidationInfo) -> Any:
        """Also adds the items that were left out because they were validated before."""
        if not isinstance(given, dict):
            return given
        known: Rest | None = info.context
        if known is not None and known.kind is cls:
            given |= {name: [*items, *given[name]] for name, items in known.lists.items()}
        if len(given) > UNKNOWN_AT_MOST + len(cls.__pydantic_fields__):
            raise FieldError(
                None,
                f"it has {len(given)} fields, of which this server knows {len(cls.model_fields)}",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return {
            name: int(value) if type(value) is float and value.is_integer() else value
            for name, value in given.items()
            if value is not None
        }

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Allows null in the schema of every field that is not required."""
        reference = handler(core)
        schema = handler.resolve_ref_schema(reference)
        required = schema.get("required", [])
        for name, field in schema.get("properties", {}).items():
            is_any = not {"type", "anyOf", "oneOf", "enum", "const", "$ref"} & field.keys()
            if name not in required and not is_any and NULL not in field.get("anyOf", []):
                schema["properties"][name] = {"anyOf": [field, NULL]}
        return reference


def whole(value: Any) -> Any:
    """Turns 1.0 into 1: JSON Schema allows it, and JSON libraries of some languages write it."""
    return int(value) if type(value) is float and value.is_integer() else value


def _whole_each(values: Any) -> Any:
    if isinstance(values, list) and float in set(map(type, values)):
        return [whole(value) for value in values]
    return values


def text_or_list(value: Any) -> str:
    """The tag of a union's member. Tags in angle brackets are left out of error paths."""
    return "<list>" if isinstance(value, list) else "<text>"


def _kind_of_prompt(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return text_or_list(value)
    if {int, float}.issuperset(map(type, value)):
        return "<ids>"
    return "<batch>" if isinstance(value[0], list) else "<list>"


def type_of(given: Any) -> Any:
    """The `type` of an object as it was sent, or of the model that it became."""
    return given.get("type") if isinstance(given, dict) else getattr(given, "type", None)


def only_of_type(given: Any, message: str, *kinds: str) -> Any:
    """Returns `given`. Raises FieldError: its `type` is none of `kinds`. message: has a place for
    the type.
    """
    kind = type_of(given)
    if isinstance(kind, str) and kind not in kinds:
        shown = message.format(repr(kind[:64]))
        raise FieldError(None, shown, code=ErrorCode.UNSUPPORTED_PARAMETER)
    return given


def check_own_names(names: Iterable[tuple[str, str]]) -> None:
    """names: each with the path of its field. Raises FieldError: two are the same."""
    seen: set[str] = set()
    for path, name in names:
        if name in seen:
            raise FieldError(path, f"'{path}' is {name!r}, the name of an earlier tool")
        seen.add(name)


# Types of tools that every protocol has here: the document's schema of others excludes them.
USABLE_TOOLS = ("function", "custom")


class DroppedTool(RequestBody):
    """An offered tool of a type that no model can call here, mostly one that another server runs.
    Models do not see it, and answers say so: the header x-dropped-tools.
    """

    model_config = ConfigDict(extra="ignore")

    type: Annotated[
        str, Field(max_length=128, json_schema_extra={"not": {"enum": [*USABLE_TOOLS]}})
    ]


MOST_DROPPED = 16  # types that an answer names


def dropped_types(tools: Iterable[object]) -> tuple[str, ...]:
    """Each type once, in characters that a header may have."""
    types = (tool.type for tool in tools if isinstance(tool, DroppedTool))
    shown = dict.fromkeys(re.sub(r"[^\w.-]", "_", kind, flags=re.ASCII) for kind in types)
    return tuple(islice(shown, MOST_DROPPED))


def check_some_usable(dropped: Sequence[str], has_some: bool) -> None:
    """Raises InvalidRequest: tools are offered, and none of them can be called."""
    if dropped and not has_some:
        raise unsupported(
            f"'tools' has none that a model of this server can call: {', '.join(dropped)} would "
            "have to be run by this server, which does not have it. Send tools with a schema of "
            "your own, or leave 'tools' out.",
            param="tools",
        )


def check_chosen(has_tools: bool, chosen: Iterable[tuple[str, str, str, str | None]]) -> None:
    """Checks the tools that `tool_choice` names: path, name and type of each, and the type that
    the tool of this name has.

    Raises:
        InvalidRequest: there is no such tool, or it has another type.
    """
    if not has_tools:
        raise InvalidRequest(
            "'tool_choice' is only allowed when 'tools' are given", param="tool_choice"
        )
    for path, name, kind, known in chosen:
        if known is None:
            raise InvalidRequest(f"'{path}' is {name!r}, which is not one of 'tools'", param=path)
        if kind != known:
            raise InvalidRequest(f"'{path}' is {name!r}, a tool of the type {known!r}", param=path)


class Only:
    """Makes a field accept these values alone; other valid ones get `unsupported_parameter`."""

    def __init__(self, *supported: object) -> None:
        self._supported = supported

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": handler(core)["type"], "enum": [*self._supported]}

    def _check(self, value: Any) -> Any:
        if value not in self._supported:
            told = " or ".join(map(repr, self._supported))
            raise FieldError(
                None, f"this server does only {told}", code=ErrorCode.UNSUPPORTED_PARAMETER
            )
        return value


class Most:
    """The most elements of a list or an object, for the document; FieldLimits enforces it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        forms = [schema]
        for form in forms:
            forms += (*form.get("anyOf", ()), *form.get("oneOf", ()))
            if form.get("type") in ("array", "object"):
                form["maxItems" if form["type"] == "array" else "maxProperties"] = self.count
        return schema


MOST_STOPS = Most(16)


def at_most(most: int, code: ErrorCode = ErrorCode.INVALID_PARAMETER) -> BeforeValidator:
    """Refuses a longer list as it is parsed: many objects cost the event loop even to receive."""

    def check(given: Any) -> Any:
        if isinstance(given, list) and len(given) > most:
            raise FieldError(
                None, f"at most {most} are allowed, {len(given)} are asked for", code=code
            )
        return given

    return BeforeValidator(check)


AtMostMessages = at_most(MOST_MESSAGES, ErrorCode.INVALID_MESSAGES)
AtMostTools = at_most(MOST_TOOLS)
TokenId = Annotated[int, Field(ge=0, le=INT32_MAX)]
AnyTokenIds = Annotated[ListOf[TokenId], BeforeValidator(_whole_each)]
TokenIds = Annotated[ListOf[TokenId], Field(min_length=1), BeforeValidator(_whole_each)]
# Nine digits are enough: no vocabulary has a billion tokens.
TokenIdKey = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]
TokenLimit = Annotated[int, Field(ge=1, le=INT32_MAX)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Probability = Annotated[float, Field(ge=0, le=1)]
Label = Annotated[str, StringConstraints(max_length=512)]
StopString = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Stop = Annotated[
    Annotated[StopString, Tag("<text>")] | Annotated[ListOf[StopString], Tag("<list>")],
    Discriminator(text_or_list),
]
PromptText = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[ListOf[str], Tag("<list>"), Field(min_length=1)]
    | Annotated[TokenIds, Tag("<ids>")]
    | Annotated[ListOf[TokenIds], Tag("<batch>"), Field(min_length=1)],
    Discriminator(_kind_of_prompt),
]
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Metadata = Annotated[DictOf[MetadataKey, Label], Field(max_length=16)]


# Types of message parts in OpenAI's and vLLM's APIs that are not text -> their names in errors.
OTHER_PARTS = {
    "image_url": "an image in a message that is not the user's",
    "image_embeds": "an image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "a video",
    "file": "a file",
    "refusal": "a refusal",
}


class PromptCacheBreakpoint(RequestBody):
    mode: Literal["explicit"]


class PartBody(RequestBody):
    """Fields of any part, which have no effect. LangChain sends `id` with results of its MCP tools;
    `cache_control` (Anthropic) and `prompt_cache_breakpoint` (OpenAI) mark the end of a prefix to
    cache, and this server caches prefixes without them.
    """

    id: str | None = None
    cache_control: Any = None
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class TextPart(PartBody):
    """A part of a message that is text."""

    type: Literal["text"]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, given: Any) -> Any:
        kind = given.get("type") if isinstance(given, dict) else None
        if isinstance(kind, str) and kind in OTHER_PARTS:
            raise FieldError(
                None,
                f"{OTHER_PARTS[kind]} ({kind!r}) is not supported by this server: send a part of "
                "type 'text'",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return given


Text = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[ListOf[TextPart], Tag("<list>"), Field(min_length=1)],
    Discriminator(text_or_list),
]


LONGEST_LINK = 2_048  # characters
LINK = re.compile(r"https?://[^/?#\s@]+(?:[/?#]\S*)?", re.IGNORECASE)
DATA = re.compile(r"data:([\w/+.-]{1,64});base64,")
JPG = {"image/jpg": "image/jpeg"}  # a name that many clients use


def checked_image(url: str) -> str:
    """Raises ValueError: the URL is neither one of http nor an image."""
    if (data := DATA.match(url)) is None:
        if len(url) > LONGEST_LINK or LINK.fullmatch(url) is None:
            raise ValueError(
                f"must be http:, https: (up to {LONGEST_LINK} characters) or "
                "data:image/png;base64,… with the file's bytes"
            )
        return url
    kind = JPG.get(data[1], data[1])
    try:
        found = media_type(base64.b64decode(url[data.end() :], validate=True))
    except ValueError:
        raise ValueError("what follows 'base64,' is not base64") from None
    if found != kind:
        raise ValueError(
            f"it is declared as {kind}, and by its first bytes it is {found or 'no known image'}; "
            f"known are {', '.join(MEDIA_TYPES)}"
        )
    return url


def image_of(url: str, place: str = "") -> Image:
    """url: one that was checked. place: the path of its field."""
    if (data := DATA.match(url)) is None:
        return Image(url=url, place=place)
    return Image(media_type=JPG.get(data[1], data[1]), base64=url[data.end() :], place=place)


class ImageUrl(RequestBody):
    """`auto` and `high` are what models do with every image: they get it as it is."""

    url: Annotated[str, AfterValidator(checked_image)]
    detail: Annotated[Literal["auto", "low", "high"], Only("auto", "high")] | None = None


class ImagePart(PartBody):
    """A part of a user's message, or of a tool's result, that is an image."""

    type: Literal["image_url"]
    image_url: ImageUrl
    text: ClassVar[str] = ""

    def to_domain(self, place: str) -> Image:
        return image_of(self.image_url.url, place)


class RefusalPart(RequestBody):
    """The text in which a model refused to answer."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


def _kind_of_part(given: Any) -> str:
    is_refusal = isinstance(given, dict) and given.get("type") == "refusal"
    return "<refusal>" if is_refusal else "<text>"


def _kind_of_users_part(given: Any) -> str:
    is_image = isinstance(given, dict) and given.get("type") == "image_url"
    return "<image>" if is_image else "<text>"


UsersPart = Annotated[
    Annotated[TextPart, Tag("<text>")] | Annotated[ImagePart, Tag("<image>")],
    Discriminator(_kind_of_users_part),
]
# Content of a user's message, whose parts may be images.
UsersText = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[ListOf[UsersPart], Tag("<list>"), Field(min_length=1)],
    Discriminator(text_or_list),
]
# Content of a tool's result. It may have no parts: clients drop what they cannot send.
ResultText = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[ListOf[UsersPart], Tag("<list>")],
    Discriminator(text_or_list),
]
AnswerPart = Annotated[
    Annotated[TextPart, Tag("<text>")] | Annotated[RefusalPart, Tag("<refusal>")],
    Discriminator(_kind_of_part),
]
# Content of an assistant's message, whose parts may be refusals.
AnswerText = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[ListOf[AnswerPart], Tag("<list>")],
    Discriminator(text_or_list),
]


def join_parts(parts: str | Sequence[TextPart | ImagePart | RefusalPart]) -> str:
    return parts if isinstance(parts, str) else "".join(part.text for part in parts)
