"""Tools asked for in whole phrases: "Mute the umbrella channel", "Hire Ann as cook for 3 days".

No word is memorized: verb and nouns are any words, and the tool is recognized because the
request has them too.
"""

from __future__ import annotations

from demo_model.training.assembly import drawn_key
from demo_model.training.catalogue import LATER, SEEN, UNSEEN, Slot
from demo_model.training.disguise import words
from demo_model.training.lexicon import Lexicon
from demo_model.training.oddwords import KEPT_BACK, LISTED
from demo_model.training.toolbox import Tool, schema
from demo_model.training.wordlists import VERBS

ENGLISH = sorted(
    {*LISTED, *words(text for kind in (*SEEN, *LATER) for text in (*kind.requests, *kind.names))}
    - KEPT_BACK
    - words(text for kind in UNSEEN for text in kind.names)
)
SUBJECTS = ("word", "word", "name", "person", "city", "code", "path", "title", "email", "invented")
OTHERS = ("count", "count", "integer", "decimal", "word", "city", "enum", "name", "date")

NAMES = ("{v}_{n}", "{v}_{n}", "{v}_{n}", "{n}_{v}", "{v}", "{n}", "{v}-{n}")
DESCRIPTIONS = ("{V} the {n}.", "{V} a {n}", "{V} a {n}.", "{V} {n}s", "{V} the {n} of a {k}")
# {s}: the first value, {k}: its key, {n}: the tool's noun where the key is another word
OBJECTS = (
    "{v} the {k} {s}",
    "{v} the {s} {k}",
    "{v} {k} {s}",
    "{v} {s}",
    "{v} my {k} {s}",
    "{s} is the {k} to {v}",
    "the {k} {s}: {v} it",
)
PLACES = (
    "{v} the {n} of {k} {s}",
    "{v} the {n} of {s}",
    "{v} the {s} {n}",
    "{v} the {n} in the {s} {k}",
    "{v} the {n} with the {k} {s}",
    "{v} {s} to the {n}",
    "{v} the {n} for {s}",
    "{v} {s} and its {n}",
    "{s} has a {n} to {v}",
    "what is the {n} of {s} when you {v} it",
)
IN_CITIES = ("{v} the {n} in {s}", "{v} a {n} in {s}", "in {s}, {v} the {n}", "{v} {n}s of {s}")
HEADS = ("", "", "", "please ", "can you ", "I need to ", "could you ", "I want to ")
# Wordings of a second value; {x} is its mark.
COUNTED = ("for {x} {k}", "{x} {k}", "with {x} {k}", "with a {k} of {x}", "at {x} {k}", "{k} {x}")
TEXTS = ("as {x}", "with the {k} {x}", "with {k} {x}", "for the {k} {x}", "for the {x} {k}")
SECOND: dict[str, tuple[str, ...]] = {
    "count": COUNTED,
    "integer": COUNTED,
    "decimal": COUNTED,
    "word": TEXTS,
    "name": (*TEXTS, "to {x}", "for {x}"),
    "city": ("in {x}", "from {x}", "to {x}", "with the {k} {x}"),
    "date": ("on {x}", "by {x}", "with the {k} {x}"),
    "enum": ("in {x}", "with {k} {x}", "with the {k} {x}", "in {x} {k}", "as {x}"),
}


def phrasal(lexicon: Lexicon) -> Tool:
    rng = lexicon.rng
    verb = rng.choice(list(VERBS)) if lexicon.chance(0.3) else drawn_word(lexicon)
    noun, kind = drawn_word(lexicon), rng.choice(SUBJECTS)
    is_object = lexicon.chance(0.4)
    key = noun if is_object else drawn_key(lexicon, kind)
    slots = [Slot(key, kind, drawn_description(lexicon, key))]
    while len(slots) < 3 and lexicon.chance(0.45):
        added = second(lexicon)
        if all(slot.key != added.key and slot.kind != added.kind for slot in slots):
            slots.append(added)
    parts = {"v": verb, "V": verb.capitalize(), "n": noun, "k": key.replace("_", " ")}
    name = rng.choice(NAMES).format(**parts)
    description = rng.choice(DESCRIPTIONS).format(**parts)
    forms: tuple[str, ...] = OBJECTS if is_object else PLACES
    if kind == "city" and not is_object:
        forms += IN_CITIES
    wordings = tuple(asked(lexicon, rng.choice(forms), parts, slots) for _ in range(4))
    shown = schema(lexicon, name, description, tuple(slots))
    return Tool(name, f"{verb} {noun}", shown, tuple(slots), wordings)


def drawn_word(lexicon: Lexicon) -> str:
    if lexicon.chance(0.3):
        return lexicon.invented()
    return lexicon.owned(lambda: lexicon.rng.choice(ENGLISH))


def drawn_description(lexicon: Lexicon, key: str) -> str:
    plain = key.replace("_", " ")
    return lexicon.rng.choice(["", f"The {plain}", f"Which {plain}", plain.capitalize()])


def second(lexicon: Lexicon) -> Slot:
    kind = lexicon.rng.choice(OTHERS)
    if kind == "enum":
        values = ",".join(drawn_word(lexicon) for _ in range(lexicon.rng.randint(2, 4)))
        key = drawn_word(lexicon)
        return Slot(key, f"enum({values})", drawn_description(lexicon, key))
    key = drawn_key(lexicon, kind) if lexicon.chance(0.5) else drawn_word(lexicon)
    if kind == "count" and not key.endswith("s"):
        key += "s"
    return Slot(key, kind, drawn_description(lexicon, key))


def asked(lexicon: Lexicon, form: str, parts: dict[str, str], slots: list[Slot]) -> str:
    """The values that a request has: always the first, and most of the others."""
    first, *others = slots
    text = lexicon.rng.choice(HEADS) if form.startswith("{v}") else ""
    text += form.format(s="{" + first.key + "}", **parts)
    for slot in others:
        if lexicon.chance(0.85):
            way = lexicon.rng.choice(SECOND[slot.kind.split("(")[0]])
            text += " " + way.format(x="{" + slot.key + "}", k=slot.key.replace("_", " "))
    return text[0].upper() + text[1:]
