"""Ids of tool calls, in the forms that the models' chat templates accept."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable

# (name of the tool, index of the call) -> id
NewId = Callable[[str, int], str]

_ALPHANUMERIC = string.ascii_letters + string.digits


def openai_id(name: str, index: int) -> str:
    """`call_` and 24 hexadecimal digits."""
    return f"call_{secrets.token_hex(12)}"


def mistral_id(name: str, index: int) -> str:
    """Nine letters and digits: Mistral's templates refuse any other id."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))


def kimi_id(name: str, index: int) -> str:
    """The model's own form, which its template renders back."""
    return f"functions.{name}:{index}"
