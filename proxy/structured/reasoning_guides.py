"""A constraint that begins where the reasoning ends."""

from __future__ import annotations

import json

from typing_extensions import assert_never

from proxy.domain.constraint import Constraint, GuideKind
from proxy.structured.structural_tags import Format, guide, json_format

_GAP: Format = {"type": "regex", "pattern": "[ \\n]{0,4}"}


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
    return guide({"type": "sequence", "elements": [opening, _format(constraint)]}, constraint.field)


def _format(constraint: Constraint) -> Format:
    match constraint.kind:
        case GuideKind.JSON:
            return json_format({"type": ["object", "array"]})
        case GuideKind.JSON_SCHEMA:
            return json_format(json.loads(constraint.text))
        case GuideKind.REGEX:
            return {"type": "regex", "pattern": constraint.text}
        case GuideKind.GRAMMAR:
            return {"type": "grammar", "grammar": constraint.text}
        case GuideKind.STRUCTURAL_TAG:
            found: Format = json.loads(constraint.text)["format"]
            return found
        case _:
            assert_never(constraint.kind)
