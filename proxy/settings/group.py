"""What groups of settings share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

Port = Annotated[int, Field(ge=1, le=65535)]
AtMost = Annotated[int, Field(ge=1, le=1_000_000)]
Tokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Group(BaseModel):
    """A group's docstring is the heading of its table; the text below a field describes it."""

    model_config = ConfigDict(frozen=True, defer_build=True)


def secret_value(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def words(given: Any) -> Any:
    """The words of a text that are separated by commas."""
    if not isinstance(given, str):
        return given
    return tuple(item.strip() for item in given.split(",") if item.strip())


Secret = SecretStr | None
Words = BeforeValidator(words)
