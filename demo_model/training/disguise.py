"""Known kinds of tools under invented words, so that no word of a request is memorized.

A word that a kind shares with its requests is replaced in both. Only the match identifies the
tool then, as with a tool that was never seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from demo_model.training.catalogue import Family, Slot
from demo_model.training.lexicon import Lexicon

LEAST = 4  # letters; most shorter words are function words
KEPT = {"with", "from", "that", "what", "this", "many", "into", "when", "where", "which", "than"}


def words(texts: Iterable[str]) -> set[str]:
    """In lower case; `getWeather` and `get_weather` are two words each."""
    found = (re.findall("[A-Z]?[a-z]+", text) for text in texts)
    return {word.lower() for group in found for word in group if len(word) >= LEAST} - KEPT


def disguised(lexicon: Lexicon, kind: Family) -> Family:
    """The kind with one or two shared words replaced; unchanged where it shares no word."""
    shown = words([*kind.names, *kind.descriptions, *(slot.key for slot in kind.slots)])
    shared = sorted(shown & words(map(unmarked, kind.requests)))
    count = min(len(shared), lexicon.rng.choice([1, 1, 2, 3]))
    swaps = {word: lexicon.word() for word in lexicon.rng.sample(shared, count)}

    def swapped(text: str) -> str:
        for word, other in swaps.items():
            text = re.sub(word, lambda found: in_case_of(found[0], other), text, flags=re.I)  # noqa: B023
        return text

    requests = kind.requests
    if lexicon.habits.has_fair_disguises and swaps:
        plain = ((text, unmarked(text)) for text in requests)
        requests = tuple(text for text, said in plain if swapped(said) != said) or requests
    return Family(
        tuple(map(swapped, kind.names)),
        tuple(map(swapped, kind.descriptions)),
        tuple(Slot(swapped(slot.key), slot.kind, swapped(slot.description)) for slot in kind.slots),
        tuple(map(swapped, requests)),
    )


def unmarked(request: str) -> str:
    return re.sub(r"\{.*?\}", " ", request)


def in_case_of(found: str, other: str) -> str:
    return other.capitalize() if found[0].isupper() else other
