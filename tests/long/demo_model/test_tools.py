"""The kinds of tools are well formed, and those kept for the evaluation stay unknown."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

import pytest

from demo_model.training.catalogue import (
    LATER,
    SEEN,
    UNSEEN,
    Family,
)
from demo_model.training.lexicon import Lexicon, Split
from demo_model.training.oddwords import KEPT_BACK, shown
from demo_model.training.spoken import value
from demo_model.training.toolbox import ask, by_chance, from_family
from demo_model.training.toolchat import one_call

MARK = re.compile(r"\{(.*?)\}")
# Words that tell an unseen kind from all others; no wording of a seen kind may have them.
TELLING = set(
    re.findall(
        "[a-z]+",
        "newsletter subscribe signup rent rental population transfer irrigation plants "
        "compress zip mute silence merge join hire salary measure ruler",
    )
)


def drawn(seed: int, split: Split = Split.TRAIN) -> Lexicon:
    return Lexicon(random.Random(seed), split)


def texts(kind: Family) -> Iterable[str]:
    return [*kind.names, *kind.descriptions, *kind.requests]


def words(kinds: Iterable[Family]) -> set[str]:
    joined = " ".join(MARK.sub(" ", text) for kind in kinds for text in texts(kind))
    return set(re.findall("[a-z]+", joined.lower()))


@pytest.mark.parametrize("kind", [*SEEN, *LATER, *UNSEEN], ids=lambda kind: kind.names[0])
def test_a_kind_is_well_formed(kind: Family) -> None:
    keys = [slot.key for slot in kind.slots]
    marks = [MARK.findall(request) for request in kind.requests]
    assert kind.names
    assert kind.descriptions
    assert all(len(set(found)) == len(found) for found in marks)
    assert {mark for found in marks for mark in found} <= set(keys)
    assert len(set(keys)) == len(keys)
    lexicon = drawn(1)
    for slot in kind.slots:
        spoken, _ = value(lexicon, slot)
        assert spoken


def test_no_two_kinds_share_a_name_or_a_wording() -> None:
    kinds = [*SEEN, *LATER, *UNSEEN]
    names = [name for kind in kinds for name in kind.names]
    wordings = [MARK.sub("*", request).lower() for kind in kinds for request in set(kind.requests)]
    assert len(set(names)) == len(names)
    bare = [wording for wording in wordings if len(wording.replace("*", "").strip("?, .:")) > 12]
    assert len(set(bare)) == len(bare)


def test_what_tells_an_unseen_kind_stands_in_no_seen_one() -> None:
    assert not TELLING & words([*SEEN, *LATER])
    assert not KEPT_BACK & set[str]().union(*map(shown, LATER))
    for kind in UNSEEN:
        assert TELLING & words([kind])


def test_training_draws_no_unseen_kind() -> None:
    unseen = {name for kind in UNSEEN for name in kind.names}
    lexicon = drawn(2)
    for _ in range(300):
        shown = {one["function"]["name"] for one in one_call(lexicon).tools}
        assert not shown & unseen


def test_the_evaluation_asks_for_kinds_as_they_are_written() -> None:
    names = {name for kind in SEEN for name in kind.names}
    lexicon = drawn(4, Split.HELD_OUT)
    assert all(from_family(lexicon, kind).name in names for kind in SEEN)


def test_an_assembled_tool_is_asked_for_with_every_value_of_its_call() -> None:
    lexicon = drawn(5)
    for _ in range(300):
        one = ask(lexicon, by_chance(lexicon))
        for given in one.call.arguments.values():
            for item in given if isinstance(given, list) else [given]:
                assert isinstance(item, bool) or str(item).lower() in one.text.lower()
