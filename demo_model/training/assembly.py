"""Tools assembled at random from verbs, nouns and parameters, and requests for them."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

from demo_model.training.catalogue import Slot
from demo_model.training.lexicon import Lexicon
from demo_model.training.wordlists import NOUNS, VERBS

KINDS = (
    "word word invented name person city phrase title date time email code path integer integer count "
    "decimal boolean boolean enum enum list(word) list(name) list(integer)"
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
    "enum": ("mode", "type", "status", "level", "format", "direction", "priority"),
    "list": ("items", "tags", "names", "values", "members", "ids"),
}
ENUMS = (
    "low medium high|small medium large|red green blue|on off|daily weekly monthly|asc desc|fast slow|north south east west"
    "|draft final|cash card|am pm|easy normal hard|gold silver bronze|json csv xml|open closed|left right|hot cold mild"
    "|public private|new used|morning noon evening|thin thick|adult child senior|yes no maybe|start pause stop"
).split("|")

NAMED = (
    "{w} {v}|{w} {v}|the {w} {v}|{w}: {v}|{w}={v}|{v} as the {w}|{v} as {w}|{w} set to {v}|the {w} is {v}|{v} for the {w}"
    "|{w} should be {v}|{w} of {v}|its {w} is {v}|the {w} being {v}"
).split("|")
VALUE_FIRST = (
    "{v} as the {w}|{v} as {w}|{v} for the {w}|{v} as its {w}|{v} for {w}|{v} being the {w}".split(
        "|"
    )
)
# Wordings of a value without its parameter's name, for values that identify it.
UNNAMED: dict[str, str] = {
    "city": "in {v}|from {v}|at {v}|to {v}|near {v}",
    "date": "on {v}|for {v}|by {v}|until {v}",
    "time": "at {v}|by {v}|from {v}|before {v}",
    "email": "to {v}|for {v}|{v}",
    "name": "for {v}|by {v}|with {v}|to {v}|of {v}",
    "person": "for {v}|by {v}|with {v}|to {v}|of {v}",
    "code": "{v}|number {v}|with {v}|from {v}",
    "path": "from {v}|to {v}|in {v}|{v}",
    "enum": "{v}|in {v}|make it {v}|as {v}|the {v} one|with {v}",
    "list": "{v}|for {v}|with {v}|using {v}",
    "phrase": 'about {v}|called {v}|"{v}"|saying {v}',
    "title": 'called {v}|named {v}|"{v}"|for {v}',
}
OTHERWISE = "{v}|{v}|of {v}|for {v}|with {v}"
NUMBERS = ("integer", "count", "decimal")
HEADS = "|||Please |I want to |Can you |I need you to |Could you |I would like to |Let us |You should |Time to |Would you ".split(
    "|"
)
# {d}: what is done, {n}: the noun with its article, {f} and {r}: the first values and the rest
FRAMES = (
    "{h}{d} {n} {j} {f}{r}|{h}{d} {n} {j} {f}{r}|{h}{d} {n} {j} {f}{r}|{h}{d} {n}: {f}{r}|{h}{d} {n}, {f}{r}|{h}{d} {n} - {f}{r}"
    "|{j} {f}, {h}{d} {n}{r}|{h}{d}, {j} {f}, {n}{r}|about {n}: {h}{d} it {j} {f}{r}|for {n}, {d} it, {f}{r}|there is {n} to {d}, {f}{r}"
    "|{f}{r}: {d} {n}|I have {n} that you should {d} {j} {f}{r}|take {f} and {d} {n}{r}|{d} {n}. {f}{r}|we must {d} {n} {j} {f}{r}"
).split("|")
NOUNLESS = "{h}{d} {f}{r}|{h}{d} {f}{r}|{h}{d}: {f}{r}|{h}{d} {j} {f}{r}|{f}{r}: {d}|{d} it {j} {f}{r}".split(
    "|"
)
BARE = "{h}{d} {n} {f}{r}|{d} {n} {f}{r}|{f}: {d} {n}{r}|{n}, {f}{r}, {d} it".split("|")


def drawn_verb(lexicon: Lexicon) -> str:
    """A verb of the list, or any word, because unseen tools have verbs of any kind."""
    if lexicon.has_habit(lexicon.habits.odd_verbs):
        return lexicon.word()
    return lexicon.rng.choice(list(VERBS))


def sayings(verb: str) -> tuple[str, ...]:
    return VERBS.get(verb, (verb,))


def drawn_noun(lexicon: Lexicon) -> str:
    if lexicon.chance(0.5):
        return lexicon.invented()
    noun = lexicon.owned(lambda: lexicon.rng.choice(NOUNS))
    return f"{lexicon.invented()}_{noun}" if lexicon.chance(0.2) else noun


def named(lexicon: Lexicon, verb: str, noun: str) -> str:
    """The tool's name; sometimes only the description explains it."""
    if lexicon.chance(0.04):
        return f"{lexicon.invented()}_{lexicon.rng.choice(['tool', 'call', 'action'])}"
    camel = noun.replace("_", " ").title().replace(" ", "")
    styles = [f"{verb}_{noun}"] * 4 + [
        f"{noun}_{verb}",
        f"{verb}{camel}",
        f"{noun}.{verb}",
        f"{verb}-{noun}",
    ]
    return lexicon.rng.choice(styles)


def described(lexicon: Lexicon, verb: str, plain: str, *, needed: bool) -> str:
    rng = lexicon.rng
    other = rng.choice(sayings(verb)) if lexicon.chance(0.3) else verb
    return rng.choice(
        [
            f"{other.capitalize()} a {plain}.",
            f"{other.capitalize()} the {plain}",
            f"{verb.capitalize()}s the {plain}.",
            f"Use this to {other} a {plain}.",
            f"{other.capitalize()} one {plain} of the system",
            f"{plain.capitalize()}: {other}",
            f"{other.capitalize()} a {plain}." if needed else "",
        ]
    )


def drawn_slots(lexicon: Lexicon) -> tuple[Slot, ...]:
    rng = lexicon.rng
    slots: dict[str, Slot] = {}
    for _ in range(rng.choice([1, 1, 2, 2, 2, 3, 3])):
        slot = drawn_slot(lexicon)
        slots[slot.key] = slot
    return tuple(slots.values())


def drawn_slot(lexicon: Lexicon) -> Slot:
    rng = lexicon.rng
    kind = rng.choice(KINDS)
    if kind == "enum":
        known = lexicon.chance(0.6)
        values = rng.choice(ENUMS).split() if known else [lexicon.word() for _ in range(3)]
        kind = f"enum({','.join(values)})"
    key = drawn_key(lexicon, kind)
    said = lexicon.word() if lexicon.chance(0.12) else ""
    plain = said or key.replace("_", " ")
    forms = [f"The {plain}", plain.capitalize(), f"The {plain} to use", f"Which {plain}"]
    return Slot(key, kind, rng.choice(forms if said else [*forms, "", ""]), said)


def drawn_key(lexicon: Lexicon, kind: str) -> str:
    known = GENERIC_KEYS.get(kind.split("(")[0])
    if known and lexicon.chance(0.65):
        return lexicon.rng.choice(known)
    head = lexicon.invented() if lexicon.chance(0.7) else lexicon.word()
    suffix = lexicon.rng.choice(["id", "name", "type", "code"])
    return f"{head}_{suffix}" if lexicon.chance(0.15) else head


def requests(
    lexicon: Lexicon, said: str, noun: str, slots: tuple[Slot, ...], *, may_drop_noun: bool
) -> tuple[str, ...]:
    """Returns four wordings that name most of the slots, in any order."""
    return tuple(
        request(lexicon, said, "" if may_drop_noun and lexicon.chance(0.4) else noun, slots)
        for _ in range(4)
    )


def request(lexicon: Lexicon, said: str, noun: str, slots: tuple[Slot, ...]) -> str:
    rng = lexicon.rng
    chosen = list(slots)
    if not lexicon.chance(0.75):
        chosen = rng.sample(slots, rng.randint(1, len(slots)))
    if lexicon.chance(0.4):
        rng.shuffle(chosen)
    bare = [is_plain(slot, slots) and lexicon.chance(0.45) for slot in chosen]
    forms = VALUE_FIRST if lexicon.has_habit(lexicon.habits.values_first) else NAMED
    style = rng.choice(forms) if forms is VALUE_FIRST or lexicon.chance(0.5) else None
    first, *rest = (
        unnamed(lexicon, slot) if is_bare else with_name(lexicon, slot, style)
        for slot, is_bare in zip(chosen, bare, strict=True)
    )
    frame = rng.choice((BARE if all(bare) else FRAMES) if noun else NOUNLESS)
    leads = bare[0] or chosen[0].kind == "boolean"  # it has its own preposition
    text = frame.format(
        h=rng.choice(HEADS) if frame.startswith("{h}") else "",
        d=said,
        n=rng.choice(["the ", "a ", "my ", "the ", "this ", "our "]) + noun if noun else "",
        j="" if leads else rng.choice(["with", "for", "with", "using"]),
        f=first,
        r=following(lexicon, rest),
    ).lstrip()
    return text[0].upper() + text[1:]


def following(lexicon: Lexicon, parts: list[str]) -> str:
    if not parts:
        return ""
    last = lexicon.rng.choice([" and ", ", ", " and "])
    return "".join(f", {part}" for part in parts[:-1]) + last + parts[-1]


def is_plain(slot: Slot, slots: tuple[Slot, ...]) -> bool:
    """Whether the value alone identifies its parameter."""
    if slot.kind == "boolean":
        return False  # its words contain the name
    kin = [other for other in slots if sort_of(other) == sort_of(slot)]
    tells = sort_of(slot) != "text" or slot.key in GENERIC_KEYS.get(slot.kind, ())
    return kin == [slot] and (tells or len(slots) == 1)


def sort_of(slot: Slot) -> str:
    """The kind of value that a schema distinguishes: number, list, enum or text."""
    head = slot.kind.split("(")[0]
    if head in ("boolean", "enum", "list"):
        return head
    return "number" if head in NUMBERS else "text"


def unnamed(lexicon: Lexicon, slot: Slot) -> str:
    forms = UNNAMED.get(slot.kind.split("(")[0], OTHERWISE).split("|")
    return lexicon.rng.choice(forms).format(v="{" + slot.key + "}")


def with_name(lexicon: Lexicon, slot: Slot, style: str | None) -> str:
    """A slot's mark next to its name; the value of a boolean contains the name already."""
    mark = "{" + slot.key + "}"
    if slot.kind == "boolean":
        return mark
    style = style or lexicon.rng.choice(NAMED)
    return style.format(w=slot.said or slot.key.replace("_", " "), v=mark)
