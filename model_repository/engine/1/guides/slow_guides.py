"""The refusal of guides that take too much time."""

from __future__ import annotations

from port import Guide


def refusal(guide: Guide) -> str:
    """The error message for the client whose guide takes too long to follow."""
    return (
        f"the {guide.kind} guide takes too long to follow token by token, so the engine stopped "
        "the answer. The guide is ambiguous: the same text matches it in many different ways. "
        "Write it without rules that refer to themselves on both sides, and without nested "
        "repetitions."
    )
