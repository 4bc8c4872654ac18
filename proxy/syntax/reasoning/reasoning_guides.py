"""A constraint that begins where the reasoning ends."""

from __future__ import annotations

from triton_openai.proxy.domain.constraint import Constraint
from triton_openai.proxy.structured.structural_tags import Format, format_of, guide

_GAP: Format = {"type": "regex", "pattern": "[ \\n]{0,4}"}


def after_text(constraint: Constraint, text: str) -> Constraint:
    """Behind words that the syntax wants before an answer."""
    if not text:
        return constraint
    before: Format = {"type": "const_string", "value": text}
    both: Format = {"type": "sequence", "elements": [before, format_of(constraint)]}
    return guide(both, constraint.field)


def after_reasoning(constraint: Constraint, begin: str, end: str) -> Constraint:
    """Free text to `end`, then what the constraint asks for.

    begin: what opens the reasoning, "" where the prompt has opened it; one that the model opens
    itself may be left out.
    """
    thought: Format = {
        "type": "tag",
        "begin": begin,
        "content": {"type": "any_text"},
        "end": end,
    }
    opening: Format = {"type": "sequence", "elements": [thought, _GAP]}
    if begin:
        opening = {"type": "optional", "content": opening}
    return guide(
        {"type": "sequence", "elements": [opening, format_of(constraint)]}, constraint.field
    )
