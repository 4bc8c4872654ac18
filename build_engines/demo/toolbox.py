"""Single tools and requests for them: hand-written kinds, and kinds put together by chance."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from build_engines.demo.catalogue import OTHER_KEYS, Family, Slot
from build_engines.demo.chat import Call
from build_engines.demo.lexicon import Lexicon, Split
from build_engines.demo.wordlists import NOUNS, VERBS

Schema = dict[str, Any]
TYPES = {
    "integer": "integer",
    "count": "integer",
    "number": "number",
    "decimal": "number",
    "boolean": "boolean",
}
CHANCE_KINDS = (
    "word word invented name person city phrase title date time email code path integer integer count "
    "decimal boolean enum list(word) list(name) list(integer)"
).split()
GENERIC_KEYS: dict[str, tuple[str, ...]] = {
    "word": ("color", "kind", "category", "material", "style", "topic", "room", "brand"),
    "invented": ("key", "tag", "label", "host", "alias"),
    "name": ("name", "owner", "author", "user", "assignee", "customer"),
    "person": ("name", "contact", "manager", "guest", "customer_name"),
    "city": ("city", "location", "place", "destination", "region"),
    "phrase": ("query", "text", "note", "comment", "reason", "description"),
    "title": ("title", "subject", "heading", "project"),
    "date": ("date", "day", "start_date", "due_date", "end_date"),
    "time": ("time", "start_time", "hour"),
    "email": ("email", "address", "recipient"),
    "code": ("id", "code", "item_id", "reference", "serial"),
    "path": ("path", "file", "filename", "source"),
    "integer": ("count", "limit", "quantity", "size", "number", "max_results", "year", "weight"),
    "count": ("age", "amount", "days", "seats", "level", "page"),
    "decimal": ("price", "rate", "speed", "ratio", "score", "temperature"),
    "boolean": ("urgent", "verbose", "public", "express", "silent", "active", "recursive"),
    "list": ("items", "tags", "names", "values", "members", "ids"),
}
ENUMS = (
    "low medium high|small medium large|red green blue|on off|daily weekly monthly|asc desc|fast slow|north south east west"
    "|draft final|cash card|am pm|easy normal hard|gold silver bronze|json csv xml"
).split("|")


@dataclass(frozen=True, slots=True)
class Tool:
    """What the model is shown (`schema`, OpenAI's shape) and how this tool is asked for."""

    name: str
    kind: str  # two tools of one kind answer the same requests
    schema: Schema
    slots: tuple[Slot, ...]
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request in words and the call that it stands for."""

    text: str
    call: Call


def from_family(lexicon: Lexicon, kind: Family) -> Tool:
    rng = lexicon.rng
    name, description = rng.choice(kind.names), rng.choice(kind.descriptions)
    slots, wordings = kind.slots, kind.requests
    for slot in kind.slots:
        if slot.key in OTHER_KEYS and lexicon.chance(0.35):
            other = Slot(rng.choice(OTHER_KEYS[slot.key]), slot.kind, slot.description)
            if all(other.key != present.key for present in slots):
                slots = tuple(other if present is slot else present for present in slots)
                marks = ("{" + slot.key + "}", "{" + other.key + "}")
                wordings = tuple(wording.replace(*marks) for wording in wordings)
    return Tool(name, kind.names[0], schema(lexicon, name, description, slots), slots, wordings)


def by_chance(lexicon: Lexicon, noun: str | None = None) -> Tool:
    """A tool whose verb, noun and parameters are drawn; `noun` makes it a near twin of another."""
    rng = lexicon.rng
    verb = rng.choice(list(VERBS))
    said = verb if noun else rng.choice(VERBS[verb])
    noun = noun or drawn_noun(lexicon)
    slots = tuple(drawn_slots(lexicon))
    name = joined(lexicon, verb, noun)
    plain = noun.replace("_", " ")
    description = rng.choice(
        [
            f"{verb.capitalize()} a {plain}.",
            f"{verb.capitalize()} the {plain}",
            f"{verb.capitalize()}s the {plain}.",
            f"Use this to {verb} a {plain}.",
            f"{verb.capitalize()} one {plain} of the system",
            "",
        ]
    )
    wordings = requests(lexicon, said, plain, slots)
    return Tool(name, f"{verb} {noun}", schema(lexicon, name, description, slots), slots, wordings)


def drawn_noun(lexicon: Lexicon) -> str:
    if lexicon.chance(0.5):
        return lexicon.invented()
    noun = lexicon.owned(lambda: lexicon.rng.choice(NOUNS))
    return f"{lexicon.invented()}_{noun}" if lexicon.chance(0.2) else noun


def joined(lexicon: Lexicon, verb: str, noun: str) -> str:
    camel = noun.replace("_", " ").title().replace(" ", "")
    styles = [f"{verb}_{noun}"] * 4 + [
        f"{noun}_{verb}",
        f"{verb}{camel}",
        f"{noun}.{verb}",
        f"{verb}-{noun}",
    ]
    return lexicon.rng.choice(styles)


def drawn_slots(lexicon: Lexicon) -> list[Slot]:
    rng = lexicon.rng
    slots: dict[str, Slot] = {}
    for _ in range(rng.choice([1, 1, 2, 2, 2, 3])):
        kind = rng.choice(CHANCE_KINDS)
        if kind == "enum":
            values = (
                rng.choice(ENUMS).split()
                if lexicon.chance(0.6)
                else [lexicon.word() for _ in range(3)]
            )
            kind = f"enum({','.join(values)})"
        key = drawn_key(lexicon, kind)
        words = key.replace("_", " ")
        slots[key] = Slot(
            key,
            kind,
            rng.choice([f"The {words}", words.capitalize(), f"The {words} to use", "", ""]),
        )
    return list(slots.values())


def drawn_key(lexicon: Lexicon, kind: str) -> str:
    known = GENERIC_KEYS.get(kind.split("(")[0])
    if known and lexicon.chance(0.65):
        return lexicon.rng.choice(known)
    head = lexicon.invented() if lexicon.chance(0.7) else lexicon.word()
    return (
        f"{head}_{lexicon.rng.choice(['id', 'name', 'type', 'code'])}"
        if lexicon.chance(0.15)
        else head
    )


NAMINGS = "{w} {v}|the {w} {v}|{w}: {v}|{w}={v}|{w} {v}|{v} as the {w}|{w} set to {v}".split("|")
HEADS = "||Please |I want to |Can you |I need you to |Could you ".split("|")


def requests(lexicon: Lexicon, said: str, noun: str, slots: tuple[Slot, ...]) -> tuple[str, ...]:
    """Four wordings that name most of the slots, not always in the schema's order."""
    return tuple(request(lexicon, said, noun, slots) for _ in range(4))


def request(lexicon: Lexicon, said: str, noun: str, slots: tuple[Slot, ...]) -> str:
    rng = lexicon.rng
    chosen = list(slots)
    if not lexicon.chance(0.75):
        chosen = rng.sample(slots, rng.randint(1, len(slots)))
    if lexicon.chance(0.3):
        rng.shuffle(chosen)
    style = rng.choice(NAMINGS)
    parts = [named(slot, style) for slot in chosen]
    rest = ", ".join(parts[:-1]) + rng.choice([" and ", ", ", " and "]) if parts[1:] else ""
    head = rng.choice(HEADS)
    article = rng.choice(["the ", "a ", "my ", "the "])
    joint = rng.choice(["with", "for", "with", "using"])
    text = f"{head}{said} {article}{noun} {joint} {rest}{parts[-1]}"
    return text[0].upper() + text[1:]


def named(slot: Slot, style: str) -> str:
    """A slot's mark beside its name; a boolean's value names it already."""
    mark = "{" + slot.key + "}"
    if slot.kind == "boolean" and "{w} {v}" in style:
        return mark
    return style.format(w=slot.key.replace("_", " "), v=mark)


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
    if slot.description and lexicon.chance(0.6):
        entry["description"] = slot.description
    if lexicon.chance(0.06):
        entry = {"title": slot.key.replace("_", " ").title(), **entry}
    return dict(sorted(entry.items())) if lexicon.chance(0.1) else entry


def ask(lexicon: Lexicon, tool: Tool) -> Ask:
    template = lexicon.rng.choice(tool.requests)
    if lexicon.chance(0.06):
        template = explicit(lexicon, tool)
    text, values = template, {}
    for slot in tool.slots:
        mark = "{" + slot.key + "}"
        if mark in template:
            spoken, values[slot.key] = value(lexicon, slot)
            text = text.replace(mark, spoken)
    return Ask(" ".join(text.split()), Call(name=tool.name, arguments=values))


def explicit(lexicon: Lexicon, tool: Tool) -> str:
    pairs = ", ".join(f"{slot.key}={{{slot.key}}}" for slot in tool.slots)
    head = f"{lexicon.rng.choice(['Call', 'Use', 'Run', 'Please call'])} {tool.name}"
    return f"{head} with {pairs}" if pairs else head


def value(lexicon: Lexicon, slot: Slot) -> tuple[str, Any]:
    """How a value is said, and how it stands in the call."""
    kind, _, inner = slot.kind.rstrip(")").partition("(")
    rng = lexicon.rng
    if kind == "boolean":
        flag = lexicon.chance(0.5)
        words = slot.key.replace("_", " ")
        yes = [f"with {words}", f"{words} true", f"{words}: yes", f"{words} on"]
        no = [f"without {words}", f"{words} false", f"{words}: no", f"{words} off"]
        return rng.choice(yes if flag else no), flag
    if kind == "enum":
        word = rng.choice(inner.split(","))
        return word, word
    if kind == "list":
        items = [getattr(lexicon, inner)() for _ in range(rng.randint(2, 4))]
        spoken = [str(item) for item in items]
        return ", ".join(spoken[:-1]) + " and " + spoken[-1], items
    if kind == "number":
        kind = rng.choice(["integer", "integer", "decimal"])
    drawn = getattr(lexicon, kind)()
    quoted = (
        kind in ("phrase", "title", "word")
        and lexicon.split is Split.TRAIN
        and lexicon.chance(0.08)
    )
    return (f'"{drawn}"' if quoted else str(drawn)), drawn
