"""Values: the words of a request, and the value in the call."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

from typing import Any

from demo_model.training.catalogue import Slot
from demo_model.training.lexicon import Lexicon, Split

YES = (
    "with {w}|{w} true|{w}: yes|{w} on|{w} enabled|make it {w}|{w} please|{w} should be true|keep {w} on|set {w} to true"
    "|turn {w} on|it should be {w}|{w} is true|{w} yes|and do use {w}|with {w} on|with {w} enabled|with {w} set to true"
).split("|")
NO = (
    "without {w}|{w} false|{w}: no|{w} off|{w} disabled|don't make it {w}|not {w}|no {w}|keep {w} off|{w} should be false"
    "|set {w} to false|turn {w} off|it should not be {w}|{w} is false|{w} no|do not use {w}|with {w} off|with no {w}"
).split("|")
LAST_JOINTS = (" and ", " and ", " and ", ", and ", " & ", " plus ")


def value(lexicon: Lexicon, slot: Slot) -> tuple[str, Any]:
    """The words for a value, and the value in the call."""
    kind, _, inner = slot.kind.rstrip(")").partition("(")
    rng = lexicon.rng
    if kind == "boolean":
        flag = lexicon.chance(0.5)
        form = rng.choice(YES if flag else NO)
        return form.format(w=slot.said or slot.key.replace("_", " ")), flag
    if kind == "enum":
        word = rng.choice(inner.split(","))
        return word, word
    if kind == "list":
        items = [getattr(lexicon, inner)() for _ in range(rng.randint(2, 4))]
        spoken = [str(item) for item in items]
        return ", ".join(spoken[:-1]) + rng.choice(LAST_JOINTS) + spoken[-1], items
    if kind == "number":
        kind = rng.choice(["integer", "integer", "decimal"])
    drawn = getattr(lexicon, kind)()
    quoted = (
        kind in ("phrase", "title", "word")
        and lexicon.split is Split.TRAIN
        and lexicon.chance(0.08)
    )
    return (f'"{drawn}"' if quoted else str(drawn)), drawn


def spelled_out(lexicon: Lexicon, slot: Slot) -> tuple[str, Any]:
    """The value as it is written after `key=`."""
    if slot.kind != "boolean":
        return value(lexicon, slot)
    flag = lexicon.chance(0.5)
    return lexicon.rng.choice(["true", "yes", "on"] if flag else ["false", "no", "off"]), flag
