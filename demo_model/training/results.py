"""Tool results, and the sentence that reports each."""

# ruff: noqa: SIM905  (words and sentences read best as plain text)

from __future__ import annotations

import json
from typing import Any

from demo_model.training.lexicon import Lexicon

CONDITIONS = "sunny|cloudy|rainy|clear|windy|snowy|foggy|warm".split("|")
RESULT_KEYS = (
    "temperature|condition|price|status|total|count|id|city|name|time|result|amount|message|distance|title|date|"
    "location|weight|rate|number|value|owner|unit|speed|state|order_id|humidity|score|answer"
).split("|")
WRAPPERS = "result data response output".split()
NOTHING = ("{}", "[]", "null", '""', "")


def result(lexicon: Lexicon) -> tuple[str, str]:
    """A tool's result as JSON or text, and the sentence that reports it."""
    if lexicon.has_habit(lexicon.habits.loose_results):
        return loose_result(lexicon)
    rng = lexicon.rng
    roll = rng.random()
    if roll < 0.12:
        text = rng.choice(
            [lexicon.phrase(), f"{lexicon.integer()}", lexicon.sentence(), str(lexicon.decimal())]
        )
        return text, f"The result is: {text}."
    if roll < 0.2:
        problem = lexicon.phrase()
        return json.dumps(
            {"error": problem}, ensure_ascii=False
        ), f"The tool reported an error: {problem}."
    fields = result_fields(lexicon, rng.choice([1, 2, 2, 3]))
    return json.dumps(fields, ensure_ascii=False), sentence_of(told(fields))


def result_fields(lexicon: Lexicon, count: int) -> dict[str, Any]:
    keys = lexicon.rng.sample(RESULT_KEYS, count)
    if lexicon.chance(0.3):
        keys[0] = lexicon.invented()
    return {key: result_value(lexicon, key) for key in dict.fromkeys(keys)}


def told(fields: dict[str, Any]) -> str:
    return listed(
        [f"the {key.replace('_', ' ')} is {spoken(value)}" for key, value in fields.items()]
    )


def listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def sentence_of(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def result_value(lexicon: Lexicon, key: str) -> Any:
    if key == "condition":
        return lexicon.rng.choice(CONDITIONS)
    kind = lexicon.rng.choice(
        "integer integer decimal word name city phrase time date code boolean".split()
    )
    return lexicon.chance(0.5) if kind == "boolean" else getattr(lexicon, kind)()


def spoken(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def loose_result(lexicon: Lexicon) -> tuple[str, str]:
    """A result as other programs write it: compact, indented, nested, a list, lines of text."""
    rng = lexicon.rng
    if lexicon.has_habit(lexicon.habits.free_results):
        return free_result(lexicon)
    roll = rng.random()
    if roll < 0.03:
        return rng.choice(NOTHING), "The tool gave no result."
    if roll < 0.13:
        return listed_result(lexicon)
    fields = result_fields(lexicon, rng.choice([1, 2, 2, 3, 4]))
    said = sentence_of(told(fields))
    if roll < 0.3:
        style, joint = rng.choice(
            [
                ("{}: {}", "\n"),
                ("{}: {}", ", "),
                ("{}={}", " "),
                ("{} is {}", ", "),
                ("{} = {}", "\n"),
            ]
        )
        return joint.join(style.format(key, spoken(value)) for key, value in fields.items()), said
    if roll < 0.42:
        return written(lexicon, {rng.choice(WRAPPERS): fields}), said
    if roll < 0.5:
        return written(lexicon, [fields]), said
    return written(lexicon, fields), said


def free_result(lexicon: Lexicon) -> tuple[str, str]:
    """Fields under any name, or a few words of plain text."""
    rng = lexicon.rng
    if lexicon.chance(0.5):
        fields = result_fields(lexicon, rng.choice([1, 1, 2, 3]))
        return written(lexicon, {lexicon.word(): fields}), sentence_of(told(fields))
    draws = [
        lexicon.word,
        lexicon.word,
        lexicon.integer,
        lexicon.decimal,
        lexicon.name,
        lexicon.time,
    ]
    joints = [" ", " ", " ", " and ", ", ", " of ", " in ", " is "]
    text = f"{rng.choice(draws)()}"
    for _ in range(rng.randint(1, 5)):
        text += f"{rng.choice(joints)}{rng.choice(draws)()}"
    return text, f"The result is: {text}."


def listed_result(lexicon: Lexicon) -> tuple[str, str]:
    """A list of values, bare or under a name."""
    values = [lexicon.integer, lexicon.word, lexicon.name, lexicon.city, lexicon.code]
    draw = lexicon.rng.choice(values)
    items = [draw() for _ in range(lexicon.rng.randint(2, 4))]
    said = listed([str(item) for item in items])
    if lexicon.chance(0.5):
        return written(lexicon, items), f"The results are {said}."
    key = lexicon.word()
    return written(lexicon, {key: items}), f"The {key} is {said}."


def written(lexicon: Lexicon, found: Any) -> str:
    """The value as JSON, compact in most cases."""
    roll = lexicon.rng.random()
    if roll < 0.75:
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(found, ensure_ascii=False, indent=2 if roll < 0.9 else None)
