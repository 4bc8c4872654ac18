"""The fields of a body that say what the answer must look like, in every server's words.

OpenAI's response_format (with TensorRT-LLM's types), vLLM's guided_* (in `nvext`, too) and
structured_outputs, SGLang's bare regex, ebnf and json_schema. One of them a request.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from triton_openai.proxy.api.bodies.body import FieldError
from triton_openai.proxy.api.openai.requests.fields import ListOf, RequestBody, only
from triton_openai.proxy.api.openai.requests.guided_body import (
    Choices,
    Guide,
    GuidedBody,
    Json,
    JsonObject,
    given,
)
from triton_openai.proxy.api.openai.requests.nvext import NvExtBody
from triton_openai.proxy.structured.asked import Asked, Form

SchemaName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class TextFormat(RequestBody):
    type: Literal["text"]

    def asked(self) -> Asked | None:
        return None


class NamedSchema(RequestBody):
    name: SchemaName
    description: str | None = None
    schema_: JsonObject = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(RequestBody):
    type: Literal["json_schema"]
    json_schema: NamedSchema

    def asked(self) -> Asked:
        return Asked(
            field="response_format.json_schema.schema",
            form=Form.SCHEMA,
            value=self.json_schema.schema_,
            is_strict=bool(self.json_schema.strict),
        )


class JsonFormat(RequestBody):
    """TensorRT-LLM's `json`; OpenAI's `json_object`, with llama.cpp's and Fireworks' `schema`."""

    type: Literal["json", "json_object"]
    schema_: JsonObject | None = Field(None, alias="schema")

    def asked(self) -> Asked:
        if self.schema_ is None:
            return Asked(field="response_format", form=Form.JSON_OBJECT)
        return Asked(field="response_format.schema", form=Form.SCHEMA, value=self.schema_)


class RegexFormat(RequestBody):
    type: Literal["regex"]
    regex: Guide

    def asked(self) -> Asked:
        return Asked(field="response_format.regex", form=Form.REGEX, value=self.regex)


class EbnfFormat(RequestBody):
    type: Literal["ebnf"]
    ebnf: Guide

    def asked(self) -> Asked:
        return Asked(field="response_format.ebnf", form=Form.GRAMMAR, value=self.ebnf)


class GrammarFormat(RequestBody):
    type: Literal["grammar"]
    grammar: Guide

    def asked(self) -> Asked:
        return Asked(field="response_format.grammar", form=Form.GRAMMAR, value=self.grammar)


class StructuralTagFormat(RequestBody):
    """xgrammar's `format`, or `structures` and `triggers`."""

    type: Literal["structural_tag"]
    format: JsonObject | None = None
    structures: ListOf[JsonObject] | None = None
    triggers: ListOf[Guide] | None = None

    def asked(self) -> Asked:
        given = self.model_dump(exclude_none=True)
        return Asked(field="response_format", form=Form.STRUCTURAL_TAG, value=given)


def _type_of(value: Any) -> str | None:
    """Tags in angle brackets stay out of error paths."""
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
    """vLLM's; exactly one of its fields. There is one backend, so none to fall back to."""

    json_: Json | None = Field(None, alias="json")
    regex: Guide | None = None
    choice: Choices | None = None
    grammar: Guide | None = None
    json_object: bool | None = None
    structural_tag: Json | None = None
    disable_fallback: bool | None = None

    def asked(self) -> list[Asked]:
        return given(
            ("structured_outputs.json", Form.SCHEMA, self.json_),
            ("structured_outputs.regex", Form.REGEX, self.regex),
            ("structured_outputs.choice", Form.CHOICE, self.choice),
            ("structured_outputs.grammar", Form.GRAMMAR, self.grammar),
            ("structured_outputs.json_object", Form.JSON_OBJECT, self.json_object or None),
            ("structured_outputs.structural_tag", Form.STRUCTURAL_TAG, self.structural_tag),
        )


class FormatBody(GuidedBody, NvExtBody):
    """Shared by chat completions and completions."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_decoding_backend: (
        Annotated[str, only("auto", "xgrammar", "xgrammar:no-fallback")] | None
    ) = None
    json_schema: Json | None = None
    regex: Guide | None = None
    ebnf: Guide | None = None

    @model_validator(mode="after")
    def _one_format(self) -> FormatBody:
        asked = self._asked()
        if len(asked) > 1:
            first, second = asked[0].field, asked[1].field
            raise FieldError(
                second, f"'{first}' and '{second}' both say what the answer must look like"
            )
        return self

    @property
    def asked_format(self) -> Asked | None:
        return next(iter(self._asked()), None)

    def _asked(self) -> list[Asked]:
        formatted = self.response_format and self.response_format.asked()
        return [
            *([formatted] if formatted else []),
            *(self.structured_outputs.asked() if self.structured_outputs else []),
            *self._guided(),
            *given(
                ("json_schema", Form.SCHEMA, self.json_schema),
                ("regex", Form.REGEX, self.regex),
                ("ebnf", Form.GRAMMAR, self.ebnf),
            ),
        ]

    def _guided(self) -> list[Asked]:
        """The body's own, and what only `nvext` says."""
        own = self.guided()
        said = [(one.form, one.value) for one in own]
        extra = self.nvext.guided("nvext.") if self.nvext else []
        return own + [one for one in extra if (one.form, one.value) not in said]
