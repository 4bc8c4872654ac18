"""Special tokens in guides: the engine gives them no text, so a guide must name their ids."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from proxy.domain.constraint import Constraint
from proxy.language.structured.structural_tags import (
    Format,
    const_string,
    sequence,
    structural_tag,
    tag,
)

_EMPTY = const_string("")


class InexpressibleTokens(ValueError):
    """The guide has a special token in a place where xgrammar takes text only."""


def with_token_ids(constraint: Constraint, special_tokens: Mapping[int, bytes]) -> Constraint:
    """The structural tag, with every special token in its strings replaced by the token's id.

    Args:
        special_tokens: their texts by id.

    Raises:
        InexpressibleTokens: a trigger consists of a special token and further text.
    """
    ids = {text.decode(): token for token, text in special_tokens.items() if text}
    if not ids or not _pattern(tuple(ids)).search(constraint.text):
        return constraint
    translated = _Tokens(ids).translated(json.loads(constraint.text)["format"])
    return structural_tag(translated, constraint.field)


@lru_cache(maxsize=8)
def _pattern(texts: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})")


class _Tokens:
    """Translates formats; the special tokens are split out of all of their strings."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        self._mark = _pattern(tuple(ids))

    def translated(self, given: Format) -> Format:
        match given["type"]:
            case "const_string":
                return _sequence(self._pieces(given["value"]))
            case "tag":
                return self._tag(given)
            case "triggered_tags":
                return self._triggered(given)
            case "tags_with_separator":
                tags = [self._begun(tag) for tag in given["tags"]]
                return {**given, "tags": tags}
            case "sequence" | "or":
                return {**given, "elements": list(map(self.translated, given["elements"]))}
            case "optional" | "repeat":
                return {**given, "content": self.translated(given["content"])}
            case _:
                return given

    def _pieces(self, text: str) -> list[Format]:
        return [
            {"type": "token", "token": self._ids[part]} if part in self._ids else const_string(part)
            for part in self._mark.split(text)
            if part
        ]

    def _tag(self, given: Format) -> Format:
        """Free text in a tag ends at the first piece of the tag's end."""
        begin, end = self._pieces(given["begin"]), self._pieces(given["end"])
        content = self.translated(given["content"])
        if content["type"] == "any_text" and end:
            first, *end = end
            if first["type"] == "token":
                content = {"type": "any_tokens", "exclude_tokens": [first["token"]]}
            content = tag("", content, _mark(first))
        return _sequence([*begin, content, *end])

    def _begun(self, given: Format) -> Format:
        """A tag that remains a tag: its begin and its end are one piece each."""
        first, *begin = self._pieces(given["begin"])
        *ends, last = self._pieces(given["end"]) or [_EMPTY]
        content = _sequence([*begin, self.translated(given["content"]), *ends])
        return tag(_mark(first), content, _mark(last))

    def _triggered(self, given: Format) -> Format:
        triggers = [self._pieces(trigger) for trigger in given["triggers"]]
        tags = [self._begun(tag) for tag in given["tags"]]
        if all(len(one) == 1 and one[0]["type"] == "token" for one in triggers):
            rest = {key: given[key] for key in given if key not in ("type", "triggers", "tags")}
            ids = [one[0]["token"] for one in triggers]
            return {"type": "token_triggered_tags", "trigger_tokens": ids, "tags": tags, **rest}
        if any(one["type"] == "token" for trigger in triggers for one in trigger):
            raise InexpressibleTokens(f"{given['triggers']} has text next to a special token")
        return {**given, "tags": tags}


def _mark(piece: Format) -> Any:
    return piece if piece["type"] == "token" else piece["value"]


def _sequence(elements: list[Format]) -> Format:
    return sequence(*(elements or [_EMPTY]))
