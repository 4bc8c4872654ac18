"""What an answer must conform to, while it is generated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class GuideKind(str, Enum):
    """The values are the tensor contract's."""

    JSON = "json"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GRAMMAR = "ebnf_grammar"
    STRUCTURAL_TAG = "structural_tag"


@dataclass(frozen=True, slots=True)
class Constraint:
    """`text`: a JSON Schema, regex, EBNF or structural tag; empty for any JSON.

    field: the caller's path of what asked for it, for errors. is_strict: what a grammar cannot
    hold of it is checked in the answer.
    """

    kind: GuideKind
    text: str = ""
    field: str = "constraint"
    is_strict: bool = False
