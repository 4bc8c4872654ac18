"""Words of any spelling: from English pieces, from a list, or of random letters.

The syllables of `Lexicon.invented` do not contain many of the tokenizer's pieces, and the model
fails to copy a piece that it never copied in training.
"""

from __future__ import annotations

import random
import re
from string import ascii_lowercase

from demo_model.training.catalogue import SEEN, UNSEEN, Family
from demo_model.training.wordlists import ACCENTED, CITIES, NAMES, NOUNS, VERBS, WORDS

LEAST = 4  # letters; most shorter words are function words
LONGEST = 12


def words(*texts: str) -> set[str]:
    return {word for word in re.findall("[a-z]+", " ".join(texts).lower()) if len(word) >= LEAST}


def shown(kind: Family) -> set[str]:
    """The words of the tool of a kind, without those of its requests."""
    return words(*kind.names, *kind.descriptions, *(slot.key for slot in kind.slots))


KNOWN_LISTS = words(*WORDS, *NAMES, *CITIES, *NOUNS, *VERBS)
LISTED = sorted(KNOWN_LISTS.union(*map(shown, SEEN)))
KEPT_BACK = frozenset[str]().union(*map(shown, UNSEEN)) - set(LISTED)


def odd_word(rng: random.Random) -> str:
    """A lower-case word, never one that only an unseen kind of tool has."""
    while len(word := drawn(rng)) < LEAST or word in KEPT_BACK:
        pass
    return word


def piece_word(rng: random.Random, pieces: tuple[str, ...]) -> str:
    """A word of the tokenizer's pieces, all equally likely; never one that is kept back."""
    while True:
        word = "".join(rng.choices(pieces, k=rng.choice([1, 1, 2, 2, 3])))
        if rng.random() < 0.5:
            word = rng.choice(ascii_lowercase) + word
        if LEAST <= len(word) <= LONGEST and word not in KEPT_BACK:
            return word


def drawn(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.3:
        return rng.choice(LISTED)
    if roll < 0.45:
        return "".join(rng.choices(ascii_lowercase, k=rng.randint(LEAST, 8)))
    head, tail = rng.choice(LISTED), rng.choice(LISTED)
    word = head[: rng.randint(1, 4)] + tail[rng.randint(1, 4) :]
    if rng.random() < 0.06:
        at = rng.randrange(len(word))
        word = word[:at] + rng.choice(ACCENTED) + word[at + 1 :]
    return word
