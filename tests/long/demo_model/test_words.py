"""Odd words cover what invented ones leave out, and stay on their side of the split."""

from __future__ import annotations

import random
import re

import pytest

from demo_model.training.catalogue import SEEN, UNSEEN
from demo_model.training.lexicon import Habits, Lexicon, Split
from demo_model.training.oddwords import KEPT_BACK, odd_word, shown


def test_no_odd_word_belongs_to_an_unseen_kind() -> None:
    rng = random.Random(2)
    assert {"population", "irrigation", "newsletter"} <= KEPT_BACK
    assert not {odd_word(rng) for _ in range(5000)} & KEPT_BACK


def test_a_word_of_a_seen_kind_is_not_kept_back() -> None:
    listed = set[str]().union(*map(shown, SEEN))
    assert listed & set[str]().union(*map(shown, UNSEEN))
    assert not KEPT_BACK & listed


@pytest.mark.parametrize("draw", ["invented", "word", "name", "city", "email", "path"])
def test_odd_words_of_the_evaluation_are_never_trained_on(draw: str) -> None:
    train = Lexicon(random.Random(3), Split.TRAIN, Habits(odd_words=1.0))
    held_out = Lexicon(random.Random(4), Split.HELD_OUT)

    def words(lexicon: Lexicon) -> set[str]:
        drawn = " ".join(getattr(lexicon, draw)() for _ in range(2000)).lower()
        return set(re.findall(r"\w{4,}", drawn))

    fixed = {"north", "port", "lake", "json"}  # parts of a value that are the same on both sides
    assert not words(train) & words(held_out) - fixed
