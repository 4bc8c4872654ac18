"""Words of simple syllables that are in hardly any language."""

from __future__ import annotations

import random

from demo_model.training.wordlists import ACCENTED

ONSETS = (
    "b c d f g h j k l m n p r s t v w y z " * 4
    + "bl br ch cl cr dr fl fr gl gr kl kr pl pr qu sh sk sl st str th tr"
).split()
VOWELS = ("a e i o u " * 4 + "ai au ea ee ia io oo ou").split()
CODAS = ("b d f g k l m n p r s t x z " * 2 + "ck ll nd ng nk nt rk rn rt sk ss st th").split()


def syllabic_word(rng: random.Random) -> str:
    """At least four lower-case letters, occasionally with an accent."""
    word = syllables(rng, 1, 3 if rng.random() < 0.3 else 2)
    if rng.random() < 0.03:
        at = rng.randrange(len(word))
        word = word[:at] + rng.choice(ACCENTED) + word[at + 1 :]
    return word if len(word) > 3 else word + syllables(rng, 1, 1)


def syllables(rng: random.Random, least: int, most: int) -> str:
    count = rng.randint(least, most)
    return "".join(
        rng.choice(ONSETS) + rng.choice(VOWELS) + (rng.choice(CODAS) if rng.random() < 0.4 else "")
        for _ in range(count)
    )
