"""vLLM's guided_* fields, which may also stand in `nvext`, as NIM's clients send them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, StringConstraints, Tag

from proxy.api.openai.requests.field_types import ListOf, RequestBody
from proxy.language.structured.constraint_request import ConstraintRequest, Form

Guide = Annotated[str, StringConstraints(min_length=1)]
JsonObject = dict[str, Any]
# vLLM accepts JSON as an object or as text.
Json = Annotated[
    Annotated[Guide, Tag("<text>")] | Annotated[JsonObject, Tag("<object>")],
    Discriminator(lambda value: "<object>" if isinstance(value, dict) else "<text>"),
]
Choices = Annotated[ListOf[Guide], Field(min_length=1)]


class GuidedBody(RequestBody):
    """The guided_* fields, for the bodies and for `nvext`."""

    guided_json: Json | None = None
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
    """One ConstraintRequest for each (path, form, value) whose value is not None."""
    return [
        ConstraintRequest(field=field, form=form, value=value)
        for field, form, value in fields
        if value is not None
    ]
