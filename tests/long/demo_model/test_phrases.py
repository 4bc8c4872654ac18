"""Tools that any word may name, and disguises that a request shows."""

from __future__ import annotations

import random
import re

import pytest

from demo_model.training import phrasal
from demo_model.training.catalogue import SEEN
from demo_model.training.disguise import disguised, unmarked, words
from demo_model.training.lexicon import Habits, Lexicon, Split
from demo_model.training.oddwords import KEPT_BACK
from demo_model.training.toolbox import Tool, ask
from demo_model.training.toolchat import draw_tool
from demo_model.training.wordlists import VERBS


def drawn(seed: int, **habits: float | bool) -> Lexicon:
    return Lexicon(random.Random(seed), Split.TRAIN, Habits(**habits))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tools() -> list[Tool]:
    lexicon = drawn(1)
    return [phrasal.phrasal(lexicon) for _ in range(400)]


def test_no_word_is_kept_back_for_the_evaluation() -> None:
    assert len(phrasal.ENGLISH) > 2000
    assert not KEPT_BACK & {*phrasal.ENGLISH}


def test_a_request_has_the_words_of_its_tool(tools: list[Tool]) -> None:
    for made in tools:
        verb, noun = made.kind.split()
        known = {verb, noun, *(slot.key.replace("_", " ") for slot in made.slots)}
        for wording in made.requests:
            said = re.sub(r"\{.*?\}", " ", wording).lower()
            assert any(word in said for word in known), (made.kind, wording)


def test_each_call_has_the_values_that_are_said(tools: list[Tool]) -> None:
    lexicon = drawn(2)
    for made in tools:
        one = ask(lexicon, made)
        assert made.slots[0].key in one.call.arguments
        assert {*one.call.arguments} <= {slot.key for slot in made.slots}
        assert all(str(value) in one.text for value in one.call.arguments.values())


def test_they_are_drawn_only_where_it_is_the_habit() -> None:
    def verbs(**habits: float) -> set[str]:
        lexicon = drawn(3, families=0.0, **habits)
        return {draw_tool(lexicon).kind.split()[0] for _ in range(300)}

    assert verbs() <= {*VERBS}
    assert len(verbs(phrasal=1.0) - {*VERBS}) > 150


def test_every_request_for_a_fair_disguise_shows_a_swapped_word() -> None:
    lexicon, swapped = drawn(4, has_fair_disguises=True), 0
    for kind in SEEN * 3:
        found = disguised(lexicon, kind)
        shown = words([*kind.names, *kind.descriptions, *(slot.key for slot in kind.slots)])
        if not shown & words(map(unmarked, kind.requests)):
            assert found == kind
            continue
        swapped += 1
        assert not {*map(unmarked, found.requests)} & {*map(unmarked, kind.requests)}
    assert swapped > 300
