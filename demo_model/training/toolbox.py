"""Single tools and requests for them: hand-written kinds, and kinds assembled at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demo_model.training import assembly
from demo_model.training.catalogue import OTHER_KEYS, Family, Slot
from demo_model.training.chat import Call
from demo_model.training.disguise import disguised
from demo_model.training.lexicon import Lexicon, Split
from demo_model.training.spoken import spelled_out, value
from demo_model.training.wordlists import VERBS

Schema = dict[str, Any]
Sayer = Callable[[Lexicon, Slot], tuple[str, Any]]
TYPES = {
    "integer": "integer",
    "count": "integer",
    "number": "number",
    "decimal": "number",
    "boolean": "boolean",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: the `schema` that the model sees, in OpenAI's shape, and requests for it."""

    name: str
    kind: str  # two tools of one kind answer the same requests
    schema: Schema
    slots: tuple[Slot, ...]
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request in words, and the call that answers it."""

    text: str
    call: Call
    begins_with_value: bool  # it must keep its case


def from_family(lexicon: Lexicon, kind: Family) -> Tool:
    rng, family_name = lexicon.rng, kind.names[0]
    if lexicon.split is Split.TRAIN and lexicon.chance(lexicon.habits.disguises):
        kind = disguised(lexicon, kind)
    name, description = rng.choice(kind.names), rng.choice(kind.descriptions)
    slots, wordings = kind.slots, kind.requests
    for slot in kind.slots:
        if slot.key in OTHER_KEYS and lexicon.chance(0.35):
            other = Slot(rng.choice(OTHER_KEYS[slot.key]), slot.kind, slot.description)
            if all(other.key != present.key for present in slots):
                slots = tuple(other if present is slot else present for present in slots)
                marks = ("{" + slot.key + "}", "{" + other.key + "}")
                wordings = tuple(wording.replace(*marks) for wording in wordings)
    return Tool(name, family_name, schema(lexicon, name, description, slots), slots, wordings)


def by_chance(lexicon: Lexicon, noun: str | None = None, verb: str | None = None) -> Tool:
    """A tool of random verb, noun and parameters; given ones make it similar to another tool."""
    said = verb = verb or assembly.drawn_verb(lexicon)
    if not noun:
        said, noun = lexicon.rng.choice(assembly.sayings(verb)), assembly.drawn_noun(lexicon)
    slots = assembly.drawn_slots(lexicon)
    name = assembly.named(lexicon, verb, noun)
    plain = noun.replace("_", " ")
    description = assembly.described(lexicon, verb, plain, needed=verb not in name)
    wordings = assembly.requests(lexicon, said, plain, slots, may_drop_noun=verb not in VERBS)
    return Tool(name, f"{verb} {noun}", schema(lexicon, name, description, slots), slots, wordings)


def schema(lexicon: Lexicon, name: str, description: str, slots: tuple[Slot, ...]) -> Schema:
    properties = {slot.key: described(lexicon, slot) for slot in slots}
    parameters: Schema = {"type": "object", "properties": properties}
    if slots and lexicon.chance(0.7):
        parameters["required"] = [slot.key for slot in slots[: lexicon.rng.randint(1, len(slots))]]
    function: Schema = {"name": name, "description": description, "parameters": parameters}
    if not description:
        del function["description"]
    return {"type": "function", "function": function}


def described(lexicon: Lexicon, slot: Slot) -> Schema:
    kind, _, inner = slot.kind.rstrip(")").partition("(")
    if kind == "enum":
        entry: Schema = {"type": "string", "enum": inner.split(",")}
    elif kind == "list":
        entry = {"type": "array", "items": {"type": TYPES.get(inner, "string")}}
    else:
        entry = {"type": TYPES.get(kind, "string")}
    if slot.said or (slot.description and lexicon.chance(0.6)):
        entry["description"] = slot.description
    if lexicon.chance(0.06):
        entry = {"title": slot.key.replace("_", " ").title(), **entry}
    return dict(sorted(entry.items())) if lexicon.chance(0.1) else entry


def ask(lexicon: Lexicon, tool: Tool) -> Ask:
    if lexicon.chance(0.06):
        return fill(lexicon, tool, explicit(lexicon, tool), spelled_out)
    return fill(lexicon, tool, lexicon.rng.choice(tool.requests), value)


def fill(lexicon: Lexicon, tool: Tool, template: str, say: Sayer) -> Ask:
    """Replaces each mark with a new value."""
    text, values = template, {}
    for slot in tool.slots:
        mark = "{" + slot.key + "}"
        if mark in template:
            spoken, values[slot.key] = say(lexicon, slot)
            text = text.replace(mark, spoken)
    return Ask(
        " ".join(text.split()), Call(name=tool.name, arguments=values), template.startswith("{")
    )


def explicit(lexicon: Lexicon, tool: Tool) -> str:
    pairs = ", ".join(f"{slot.key}={{{slot.key}}}" for slot in tool.slots)
    head = f"{lexicon.rng.choice(['Call', 'Use', 'Run', 'Please call'])} {tool.name}"
    return f"{head} with {pairs}" if pairs else head
