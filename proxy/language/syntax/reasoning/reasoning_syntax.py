"""The marks around reasoning, and guides in which the answer follows the reasoning.

Made by ReasoningParser, used by `guides`.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.domain.constraint import Constraint
from proxy.language.structured.tag_formats import (
    Format,
    const_string,
    format_of,
    optional,
    regex,
    sequence,
    structural_tag,
    tag,
)

_ANY_TEXT: Format = {"type": "any_text"}
_GAP = regex("[ \\n]{0,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningSyntax:
    """before_answer: what the model writes between the reasoning and an answer that is text."""

    begin: str
    end: str
    before_answer: str = ""

    def as_text(self, constraint: Constraint) -> Constraint:
        """The constraint for an answer that is text, not calls."""
        if not self.before_answer:
            return constraint
        both = sequence(const_string(self.before_answer), format_of(constraint))
        return structural_tag(both, constraint.field)

    def in_reasoning(self, constraint: Constraint) -> Constraint:
        """The rest of a reasoning that the prompt has begun, then what the constraint allows."""
        return self._after(sequence(tag("", _ANY_TEXT, self.end), _GAP), constraint)

    def before_reasoning(self, constraint: Constraint) -> Constraint:
        """A reasoning, which the model may leave out, then what the constraint allows."""
        thought = optional(sequence(tag(self.begin, _ANY_TEXT, self.end), _GAP))
        return self._after(thought, constraint)

    @staticmethod
    def _after(opening: Format, constraint: Constraint) -> Constraint:
        return structural_tag(sequence(opening, format_of(constraint)), constraint.field)
