"""The fields of a body that set the format of the answer, in the forms of several servers.

OpenAI's response_format (with TensorRT-LLM's types), vLLM's guided_* (also in `nvext`) and
structured_outputs, SGLang's regex, ebnf and json_schema. A request may use one of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import Json, ListOf, Only, RequestBody
from proxy.language.structured.constraint_request import ConstraintRequest, Form

Guide = Annotated[str, StringConstraints(min_length=1)]
# vLLM accepts JSON as an object or as text.
JsonOrText = Annotated[
    Annotated[Guide, Tag("<text>")] | Annotated[Json, Tag("<object>")],
    Discriminator(lambda value: "<object>" if isinstance(value, dict) else "<text>"),
]
Choices = Annotated[ListOf[Guide], Field(min_length=1)]


class GuidedBody(RequestBody):
    """The guided_* fields, for the bodies and for `nvext`."""

    guided_json: JsonOrText | None = None
    guided_regex: Guide | None = None
    guided_choice: Choices | None = None
    guided_grammar: Guide | None = None

    def guided(self, path: str = "") -> list[ConstraintRequest]:
        """The formats that the fields ask for. `path` precedes the fields' names in errors."""
        return given(
            (f"{path}guided_json", Form.SCHEMA, self.guided_json),
            (f"{path}guided_regex", Form.REGEX, self.guided_regex),
            (f"{path}guided_choice", Form.CHOICE, self.guided_choice),
            (f"{path}guided_grammar", Form.GRAMMAR, self.guided_grammar),
        )


def given(*fields: tuple[str, Form, Any]) -> list[ConstraintRequest]:
    """One ConstraintRequest for each (path, form, value) whose value is not None.

    Of a schema they are strict: clients send these fields to get a guarantee.
    """
    return [
        ConstraintRequest(field=field, form=form, value=value, is_strict=form is Form.SCHEMA)
        for field, form, value in fields
        if value is not None
    ]


SchemaName = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class TextFormat(RequestBody):
    type: Literal["text"]


class NamedSchema(RequestBody):
    name: SchemaName
    description: str | None = None
    schema_: Json = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(RequestBody):
    type: Literal["json_schema"]
    json_schema: NamedSchema


class JsonFormat(RequestBody):
    """`json` is TensorRT-LLM's, `json_object` OpenAI's, `schema` llama.cpp's and Fireworks'."""

    type: Literal["json", "json_object"]
    schema_: Json | None = Field(None, alias="schema")


class RegexFormat(RequestBody):
    type: Literal["regex"]
    regex: Guide


class EbnfFormat(RequestBody):
    type: Literal["ebnf"]
    ebnf: Guide


class GrammarFormat(RequestBody):
    type: Literal["grammar"]
    grammar: Guide


class StructuralTagFormat(RequestBody):
    """A structural tag for xgrammar: `format`, or `structures` and `triggers`."""

    type: Literal["structural_tag"]
    format: Json | None = None
    structures: ListOf[Json] | None = None
    triggers: ListOf[Guide] | None = None


def _of_response_format(given: ResponseFormat) -> ConstraintRequest | None:
    path, form, is_strict = "response_format", Form.GRAMMAR, False
    value: Any = None
    match given:
        case TextFormat():
            return None
        case JsonSchemaFormat(json_schema=named):
            path, form, value = f"{path}.json_schema.schema", Form.SCHEMA, named.schema_
            is_strict = bool(named.strict)
        case JsonFormat(schema_=None):
            form = Form.JSON_OBJECT
        case JsonFormat(schema_=schema):
            path, form, value = f"{path}.schema", Form.SCHEMA, schema
        case RegexFormat(regex=regex):
            path, form, value = f"{path}.regex", Form.REGEX, regex
        case EbnfFormat(ebnf=grammar):
            path, value = f"{path}.ebnf", grammar
        case GrammarFormat(grammar=grammar):
            path, value = f"{path}.grammar", grammar
        case StructuralTagFormat():
            form, value = Form.STRUCTURAL_TAG, given.model_dump(exclude_none=True)
    return ConstraintRequest(field=path, form=form, value=value, is_strict=is_strict)


def _type_of(value: Any) -> str | None:
    """The tag of a union's member. Tags in angle brackets are left out of error paths."""
    return f"<{value['type']}>" if isinstance(value, dict) and "type" in value else None


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag("<text>")]
    | Annotated[JsonFormat, Tag("<json_object>")]
    | Annotated[JsonSchemaFormat, Tag("<json_schema>")]
    | Annotated[JsonFormat, Tag("<json>")]
    | Annotated[RegexFormat, Tag("<regex>")]
    | Annotated[EbnfFormat, Tag("<ebnf>")]
    | Annotated[GrammarFormat, Tag("<grammar>")]
    | Annotated[StructuralTagFormat, Tag("<structural_tag>")],
    Discriminator(
        _type_of,
        custom_error_type="response_format_type",
        custom_error_message=(
            "must have a 'type' of text, json_object, json_schema, structural_tag, json, regex, "
            "ebnf or grammar"
        ),
    ),
]


class StructuredOutputs(RequestBody):
    """vLLM's field. `disable_fallback` has no effect, since there is only one backend."""

    json_: JsonOrText | None = Field(None, alias="json")
    regex: Guide | None = None
    choice: Choices | None = None
    grammar: Guide | None = None
    json_object: bool | None = None
    structural_tag: JsonOrText | None = None
    disable_fallback: bool | None = None

    def asked(self) -> list[ConstraintRequest]:
        return given(
            ("structured_outputs.json", Form.SCHEMA, self.json_),
            ("structured_outputs.regex", Form.REGEX, self.regex),
            ("structured_outputs.choice", Form.CHOICE, self.choice),
            ("structured_outputs.grammar", Form.GRAMMAR, self.grammar),
            ("structured_outputs.json_object", Form.JSON_OBJECT, self.json_object or None),
            ("structured_outputs.structural_tag", Form.STRUCTURAL_TAG, self.structural_tag),
        )


class FormatBody(GuidedBody):
    """The format fields, which chat completions and completions share."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_decoding_backend: (
        Annotated[str, Only("auto", "xgrammar", "xgrammar:no-fallback")] | None
    ) = None
    json_schema: JsonOrText | None = None
    regex: Guide | None = None
    ebnf: Guide | None = None

    @model_validator(mode="after")
    def _one_format(self) -> FormatBody:
        if self.model_fields_set.isdisjoint(FORMATS):
            return self
        asked = self._asked()
        if len(asked) > 1:
            first, second = asked[0].field, asked[1].field
            raise FieldError(
                second, f"'{first}' and '{second}' both set the format of the answer: use one"
            )
        return self

    @property
    def asked_format(self) -> ConstraintRequest | None:
        if self.model_fields_set.isdisjoint(FORMATS):
            return None
        return next(iter(self._asked()), None)

    def _asked(self) -> list[ConstraintRequest]:
        formatted = self.response_format and _of_response_format(self.response_format)
        return [
            *([formatted] if formatted else []),
            *(self.structured_outputs.asked() if self.structured_outputs else []),
            *self._guides(),
            *given(
                ("json_schema", Form.SCHEMA, self.json_schema),
                ("regex", Form.REGEX, self.regex),
                ("ebnf", Form.GRAMMAR, self.ebnf),
            ),
        ]

    def _guides(self) -> list[ConstraintRequest]:
        return self.guided()


# Without any of these fields, a body sets no format.
FORMATS = frozenset({*FormatBody.model_fields, "nvext"})
