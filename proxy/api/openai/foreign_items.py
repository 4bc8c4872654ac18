"""What tools of another server have left in a conversation: a short text in the place of each item.

Such a conversation began elsewhere, and its next turn must not fail here.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

LONGEST_VALUE = 1_000  # characters of a text in it: images and ciphers are longer
LONGEST, SMALLEST, DEEPEST = 4_000, 8, 8  # characters in all, and of each member; levels
# Types that a protocol has here: the document's schema of others excludes them.
KNOWN = (
    *("text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result"),
    *("tool_reference", "tool_addition", "tool_removal", "document"),
    *("message", "reasoning", "item_reference", "compaction", "additional_tools"),
    *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
    *("tool_search_call", "tool_search_output", "input_text", "input_image", "output_text"),
)
UNREAD = {"type", "id", "status", "call_id", "tool_use_id", "cache_control", "caller"}


class ForeignItem(BaseModel):
    """An item, or a block, of an unknown type. The text is made while the body is checked."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Annotated[str, Field(max_length=128, json_schema_extra={"not": {"enum": [*KNOWN]}})]
    text: str = ""

    @model_validator(mode="before")
    @classmethod
    def _as_text(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("type"), str):
            return given
        return {"type": given["type"], "text": described(given)}


def described(item: dict[str, Any]) -> str:
    """Empty where nothing is left that a model could read. Reads no more than it writes."""
    told = _Excerpt().of({name: one for name, one in item.items() if name not in UNREAD}, DEEPEST)
    if not told:
        return ""
    if set(told) == {"text"}:
        return str(told["text"])
    return f"[{item['type']} {json.dumps(told, ensure_ascii=False)}]"


class _Excerpt:
    """What fits into LONGEST characters, without what is empty or too long for a prompt."""

    def __init__(self) -> None:
        self._left = LONGEST

    def of(self, value: Any, depth: int) -> Any:
        self._left -= SMALLEST
        if isinstance(value, str):
            value = "" if len(value) > min(LONGEST_VALUE, self._left) else value
            self._left -= len(value)
            return value
        if not isinstance(value, (dict, list)):
            return value
        if not depth:
            return None
        found: dict[Any, Any] = {}
        is_list = isinstance(value, list)
        members = enumerate(value) if isinstance(value, list) else value.items()
        for name, one in members:
            self._left -= len(str(name))
            if self._left <= 0:
                break
            if (part := self.of(one, depth - 1)) not in (None, "", [], {}):
                found[name] = part
        return [*found.values()] if is_list else found
