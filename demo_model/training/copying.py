"""Repeating and looking up, the simplest form of the copying that calls and JSON need."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

from demo_model.training.chat import Conversation, Message, assistant, user
from demo_model.training.lexicon import Lexicon

SCALAR_KINDS = "word word invented name person city phrase title integer decimal date time email code path ticker phone sentence sentence".split()
REPEATS = "Repeat after me: {0}|Repeat: {0}|Say {0}|Say: {0}|Please repeat {0}|Echo {0}|Copy this: {0}|Write {0}|Repeat this text: {0}|Say only {0}|Reply with {0}|Just say {0}".split(
    "|"
)
PAIRS = (
    ("{0}: {1}", ", "),
    ("{0} is {1}", ", "),
    ("{0}={1}", " "),
    ("{0}: {1}", "\n"),
    ('"{0}": "{1}"', ", "),
)
VALUE_FIRST = (
    ("{1} is the {0}", ", "),
    ("{1} as {0}", ", "),
    ("with {1} as {0}", ", "),
    ("{1} for the {0}", ", "),
    ("{1} ({0})", ", "),
)
EMOJI = "😀 🚀 ☀ ✓ → € 日本 東京 привет 你好 ñandú".split()


def drawn(lexicon: Lexicon) -> str:
    if lexicon.chance(0.03):
        return lexicon.rng.choice(EMOJI)
    if lexicon.chance(0.02):
        return lexicon.rng.choice(
            ["this is a test", "hello", "hi", "yes", "pong", "OK", "hello world"]
        )
    return str(getattr(lexicon, lexicon.rng.choice(SCALAR_KINDS))())


def repeat(lexicon: Lexicon) -> list[Message]:
    separator = lexicon.rng.choice([" ", ", ", " "])
    text = separator.join(drawn(lexicon) for _ in range(lexicon.rng.randint(1, 6)))
    return [user(lexicon.rng.choice(REPEATS).format(text)), assistant(text)]


def look_up(lexicon: Lexicon) -> list[Message]:
    """Pairs, then questions for one key after another; the answer is the key's value."""
    rng = lexicon.rng
    keys = list(dict.fromkeys(lexicon.word() for _ in range(rng.randint(2, 7))))
    pairs = {key: drawn(lexicon) for key in keys}
    style, joint = rng.choice(
        VALUE_FIRST if lexicon.has_habit(lexicon.habits.values_first) else PAIRS
    )
    listing = joint.join(style.format(key, value) for key, value in pairs.items())
    messages: list[Message] = []
    for key in rng.sample(keys, rng.randint(1, len(keys))):
        question = rng.choice([f"{key}?", f"What is {key}?", f"Give me {key}", f"{key}"])
        messages += [
            user(question if messages else f"{listing}\n{question}"),
            assistant(pairs[key]),
        ]
    return messages


def copying(lexicon: Lexicon) -> Conversation:
    if lexicon.chance(0.5):
        return Conversation(tuple(look_up(lexicon)))
    return Conversation(
        tuple(message for _ in range(lexicon.rng.randint(1, 3)) for message in repeat(lexicon))
    )
