"""What tools of another server have left in a conversation: a short text in the place of each item.

Such a conversation began elsewhere, and its next turn must not fail here.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

LONGEST_VALUE = 1_000  # characters of a text in it: images and ciphers are longer
LONGEST = 8_000
MOST_MEMBERS, DEEPEST = 64, 8
UNREAD = {"type", "id", "status", "call_id", "tool_use_id", "cache_control", "caller"}


class ForeignItem(BaseModel):
    """An item, or a block, of an unknown type. The text is made while the body is checked."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Annotated[str, StringConstraints(max_length=128)]
    text: str = ""

    @model_validator(mode="before")
    @classmethod
    def _as_text(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("type"), str):
            return given
        return {"type": given["type"], "text": described(given)}


def described(item: dict[str, Any]) -> str:
    """Empty where nothing is left that a model could read."""
    told = {name: value for name, value in item.items() if name not in UNREAD}
    told = _short(told, DEEPEST)
    if set(told) == {"text"}:
        return str(told["text"])
    return f"[{item['type']} {json.dumps(told, ensure_ascii=False)[:LONGEST]}]" if told else ""


def _short(value: Any, depth: int) -> Any:
    """Without what is empty or too long for a prompt."""
    if isinstance(value, str):
        return "" if len(value) > LONGEST_VALUE else value
    if not isinstance(value, (dict, list)):
        return value
    if not depth:
        return None
    if isinstance(value, list):
        parts = (_short(one, depth - 1) for one in value[:MOST_MEMBERS])
        return [part for part in parts if part not in (None, "", [], {})]
    members = ((name, _short(one, depth - 1)) for name, one in [*value.items()][:MOST_MEMBERS])
    return {name: one for name, one in members if one not in (None, "", [], {})}
