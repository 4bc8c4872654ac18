"""Hand-written kinds of tools, and the requests that people make for them.

kinds/*.txt has one block per kind: names, `:` descriptions, `-` parameters with
their kind (the lexicon's, `enum(a,b)`, `list(kind)` or `boolean`), `?` requests with
`{parameter}` marks. kinds/unseen.txt is kept for the evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KINDS = Path(__file__).with_name("kinds")
SEEN_FILES = ("common", "house", "money", "travel", "computing", "office", "shop", "life")
LATER_FILES = ("school", "health", "town", "machines", "people", "trade")


@dataclass(frozen=True, slots=True)
class Slot:
    key: str
    kind: str
    description: str
    said: str = ""  # its name in requests, where that is not its key


@dataclass(frozen=True, slots=True)
class Family:
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    slots: tuple[Slot, ...]
    requests: tuple[str, ...]


def family(block: str) -> Family:
    names, *lines = block.strip().split("\n")
    marked = {mark: [line[2:] for line in lines if line[0] == mark] for mark in ":-?"}
    slots = (Slot(*line.split(": ", 2)) for line in marked["-"])
    return Family(tuple(names.split(" | ")), tuple(marked[":"]), tuple(slots), tuple(marked["?"]))


def families(*files: str) -> tuple[Family, ...]:
    texts = ((KINDS / f"{file}.txt").read_text() for file in files)
    return tuple(family(block) for text in texts for block in text.strip().split("\n\n"))


# Neighbouring kinds of a file are alike, see `toolchat.toolset`.
SEEN, UNSEEN = families(*SEEN_FILES), families("unseen")
LATER = families(*LATER_FILES)  # only the last phases of the training have them

# Other names for parameters of hand-written kinds.
OTHER_KEYS: dict[str, tuple[str, ...]] = {
    "city": ("location", "place", "town"),
    "location": ("city", "place"),
    "a": ("x", "first", "left"),
    "b": ("y", "second", "right"),
    "to": ("recipient", "address", "email"),
    "symbol": ("ticker", "stock"),
    "query": ("q", "text", "search_term"),
    "unit": ("units", "scale"),
    "path": ("file", "filename", "file_path"),
    "date": ("day",),
    "time": ("at", "start_time"),
    "minutes": ("duration", "length"),
    "text": ("message", "content"),
    "name": ("user_name", "full_name"),
    "numbers": ("values",),
    "order_id": ("id", "number"),
    "count": ("limit", "n"),
}
