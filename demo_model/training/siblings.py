"""Sets of tools about the same subject that differ in one noun."""

from __future__ import annotations

from demo_model.training import assembly
from demo_model.training.catalogue import Slot
from demo_model.training.lexicon import Lexicon
from demo_model.training.oddwords import LISTED
from demo_model.training.toolbox import Tool, schema

# kind of the subject -> names of its parameter
SUBJECTS = {
    "city": ("city", "city", "city", "location", "place", "town"),
    "person": ("name", "user", "customer", "person"),
    "code": ("id", "item_id", "order_id", "code", "number"),
    "ticker": ("symbol", "ticker"),
    "word": ("item", "product", "topic", "room"),
    "path": ("path", "file"),
}
KNOWN = {"weather": "get_weather", "time": "get_time"}  # nouns of cities -> hand-written kinds
VERBS = ("get", "get", "get", "find", "fetch", "check", "read", "show")
NAMES = [
    "{v}_{n}",
    "{v}_{n}",
    "{v}_{n}",
    "{v}_{n}",
    "{n}",
    "{v}-{n}",
    "{n}_lookup",
    "current_{n}",
    "{v}_current_{n}",
    "{n}_of_{k}",
]
DESCRIPTIONS = [
    "Get the {n} {p} a {k}",
    "Get the {n} {p} a {k}.",
    "Get the current {n} {p} a {k}",
    "{N} {p} a {k}.",
    "The current {n}",
    "Returns the {n} {p} the {k}",
    "Tells the {n} {p} a given {k}.",
    "Look up the {n} {p} a {k}",
]
REQUESTS = [
    "What is the {n} {p} {v}?",
    "What is the {n} {p} {v}?",
    "What's the {n} {p} {v}?",
    "Tell me the {n} {p} {v}",
    "The {n} {p} {v}",
    "{N} {p} {v}?",
    "Get the {n} {p} {v}",
    "Give me {v}'s {n}",
    "What is {v}'s {n}?",
    "I need the {n} {p} {v}",
    "Do you know the {n} {p} {v}?",
    "Can you look up the {n} {p} {v}?",
    "How is the {n} {p} {v}?",
    "What {n} does {v} have?",
    "Show me the current {n} {p} {v}",
    "What is the {n} {p} {v} now?",
    "{N} {p} {v} please",
]


def siblings(lexicon: Lexicon, count: int) -> list[Tool]:
    """Tools with the same parameters, sometimes with the same verb and style of name."""
    rng = lexicon.rng
    subject = rng.choice(["city", "city", *SUBJECTS])
    slots = [Slot(rng.choice(SUBJECTS[subject]), subject, "")]
    if lexicon.chance(0.5):
        slots[0] = Slot(slots[0].key, subject, f"Name of the {slots[0].key}")
    if lexicon.chance(0.2) and (more := assembly.drawn_slot(lexicon)).key != slots[0].key:
        slots.append(more)
    nouns = list(dict.fromkeys(drawn_noun(lexicon, subject) for _ in range(count)))
    verb, style = rng.choice(VERBS), rng.choice(NAMES)
    return [sibling(lexicon, noun, verb, style, tuple(slots)) for noun in nouns]


def drawn_noun(lexicon: Lexicon, subject: str) -> str:
    if subject == "city" and lexicon.chance(0.45):
        return lexicon.rng.choice(list(KNOWN))
    if lexicon.chance(0.5):
        return lexicon.owned(lambda: lexicon.rng.choice(LISTED))
    return f"{lexicon.word()}_{lexicon.word()}" if lexicon.chance(0.15) else lexicon.word()


def sibling(lexicon: Lexicon, noun: str, verb: str, style: str, slots: tuple[Slot, ...]) -> Tool:
    rng, subject = lexicon.rng, slots[0]
    name = style.format(v=verb, n=noun, k=subject.key)
    plain, places = noun.replace("_", " "), ["in", "in", "of", "for"]
    place = rng.choice(places if subject.kind == "city" else places[2:])
    parts = {"n": plain, "N": plain.capitalize(), "p": place, "k": subject.key.replace("_", " ")}
    description = rng.choice(DESCRIPTIONS).format(**parts)
    wordings = [*rng.sample(REQUESTS, 4)]
    if subject.kind == "city":
        wordings.append("What {n} is it {p} {v}?")
    asked = tuple(
        extended(lexicon, wording.format(v="{" + subject.key + "}", **parts), slots[1:])
        for wording in wordings
    )
    kind = KNOWN.get(noun, f"tell {noun}") if subject.kind == "city" else f"tell {noun}"
    return Tool(name, kind, schema(lexicon, name, description, slots), slots, asked)


def extended(lexicon: Lexicon, text: str, slots: tuple[Slot, ...]) -> str:
    """Sometimes adds words for the other parameters."""
    said = [assembly.with_name(lexicon, slot, None) for slot in slots if lexicon.chance(0.6)]
    return ", ".join([text.rstrip("?"), *said]) if said else text
