"""Words of any spelling: of English pieces, listed ones, or letters by chance.

The syllables of `Lexicon.invented` leave many of the tokenizer's pieces uncopied, and a
piece that was never copied in training is not copied later.
"""

from __future__ import annotations

import random
import re
from string import ascii_lowercase

from triton_openai.build_engines.demo.catalogue import SEEN, UNSEEN, Family
from triton_openai.build_engines.demo.wordlists import ACCENTED, CITIES, NAMES, NOUNS, VERBS, WORDS

LEAST = 4  # letters; shorter words are mostly grammar
LONGEST = 12


def words(*texts: str) -> set[str]:
    return {word for word in re.findall("[a-z]+", " ".join(texts).lower()) if len(word) >= LEAST}


def shown(kind: Family) -> set[str]:
    """The words of a kind's tool, not of the requests for it."""
    return words(*kind.names, *kind.descriptions, *(slot.key for slot in kind.slots))


KNOWN_LISTS = words(*WORDS, *NAMES, *CITIES, *NOUNS, *VERBS)
LISTED = sorted(KNOWN_LISTS.union(*map(shown, SEEN)))
KEPT_BACK = frozenset[str]().union(*map(shown, UNSEEN)) - set(LISTED)


def odd_word(rng: random.Random) -> str:
    """In lower case; never a word that only an unseen kind of tool has."""
    while len(word := drawn(rng)) < LEAST or word in KEPT_BACK:
        pass
    return word


def piece_word(rng: random.Random, pieces: tuple[str, ...]) -> str:
    """Of the tokenizer's pieces, each as likely as any other; never a word kept back."""
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
