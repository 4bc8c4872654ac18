"""vLLM's guided_* fields, which NIM's clients put in `nvext`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, StringConstraints, Tag

from triton_openai.proxy.api.openai.requests.fields import ListOf, RequestBody
from triton_openai.proxy.structured.asked import Asked, Form

Guide = Annotated[str, StringConstraints(min_length=1)]
JsonObject = dict[str, Any]
# vLLM takes JSON as an object, or as its text.
Json = Annotated[
    Annotated[Guide, Tag("<text>")] | Annotated[JsonObject, Tag("<object>")],
    Discriminator(lambda value: "<object>" if isinstance(value, dict) else "<text>"),
]
Choices = Annotated[ListOf[Guide], Field(min_length=1)]


class GuidedBody(RequestBody):
    """A body that has them."""

    guided_json: Json | None = None
    guided_regex: Guide | None = None
    guided_choice: Choices | None = None
    guided_grammar: Guide | None = None

    def guided(self, path: str = "") -> list[Asked]:
        """`path`: of this body, up to its fields' names."""
        return given(
            (f"{path}guided_json", Form.SCHEMA, self.guided_json),
            (f"{path}guided_regex", Form.REGEX, self.guided_regex),
            (f"{path}guided_choice", Form.CHOICE, self.guided_choice),
            (f"{path}guided_grammar", Form.GRAMMAR, self.guided_grammar),
        )


def given(*fields: tuple[str, Form, Any]) -> list[Asked]:
    return [
        Asked(field=field, form=form, value=value)
        for field, form, value in fields
        if value is not None
    ]
