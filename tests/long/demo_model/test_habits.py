"""What the later phases of the training add to the text."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from demo_model.training import assembly, results, siblings
from demo_model.training.batches import Encoder
from demo_model.training.catalogue import LATER, SEEN
from demo_model.training.chat import Template
from demo_model.training.copying import VALUE_FIRST, look_up
from demo_model.training.corpus import THIRD
from demo_model.training.evaluation import calls
from demo_model.training.lexicon import Habits, Lexicon, Split, is_held_out
from demo_model.training.oddwords import KEPT_BACK
from demo_model.training.smalltalk import JOKE
from demo_model.training.toolbox import ask, by_chance
from demo_model.training.toolchat import JOKER, NO_TOOL, long_chat, no_call, toolset
from demo_model.training.wordlists import VERBS

TOKENIZER = Path(__file__).parents[3] / "demo_model" / "shipped" / "tokenizer.json"


@pytest.fixture(scope="module")
def pieces() -> tuple[str, ...]:
    return Encoder(Tokenizer.from_file(str(TOKENIZER)), Template()).pieces


def drawn(seed: int, **habits: Any) -> Lexicon:
    return Lexicon(random.Random(seed), Split.TRAIN, Habits(**habits))


def test_the_evaluation_has_no_habit_of_a_later_phase() -> None:
    assert Lexicon(random.Random(1), Split.HELD_OUT).habits == Habits()
    assert Habits() != THIRD.habits


def test_pieces_are_asked_for_by_name() -> None:
    with pytest.raises(ValueError, match="tokenizer's pieces"):
        drawn(1, piece_words=0.5)


def test_words_of_pieces_reach_every_piece(pieces: tuple[str, ...]) -> None:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))

    def reached(share: float) -> set[str]:
        lexicon = Lexicon(random.Random(2), Split.TRAIN, Habits(piece_words=share), pieces)
        words = {lexicon.invented() for _ in range(12_000)}
        assert not words & KEPT_BACK
        assert not any(map(is_held_out, words))
        return {piece for word in words for piece in tokenizer.encode(word).tokens} & {*pieces}

    assert len(reached(1.0)) > 0.95 * len(pieces) > 1.5 * len(reached(0.0))


def values_of(found: Any) -> list[str]:
    if isinstance(found, dict):
        found = list(found.values())
    return (
        [one for item in found for one in values_of(item)]
        if isinstance(found, list)
        else [results.spoken(found)]
    )


def test_a_sentence_says_every_value_of_a_loose_result() -> None:
    lexicon, compact = drawn(3, loose_results=1.0), 0
    for _ in range(500):
        content, sentence = results.result(lexicon)
        if content in results.NOTHING:
            assert sentence == "The tool gave no result."
        elif content[0] in "[{":
            found = json.loads(content)
            assert all(value in sentence for value in values_of(found))
            compact += content == json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    assert compact > 250


def test_free_results_are_nested_under_any_name_or_plain_text() -> None:
    lexicon, names = drawn(11, loose_results=1.0, free_results=1.0), set[str]()
    for _ in range(300):
        content, sentence = results.result(lexicon)
        if content[0] == "{":
            ((name, fields),) = json.loads(content).items()
            names.add(name)
            assert sentence == results.sentence_of(results.told(fields))
        else:
            assert sentence == f"The result is: {content}."
    assert 80 < len(names) < 220


def test_siblings_differ_in_their_noun_alone() -> None:
    lexicon = drawn(4)
    for _ in range(200):
        tools = siblings.siblings(lexicon, 3)
        assert len({made.name for made in tools}) == len({made.kind for made in tools})
        assert len({made.slots for made in tools}) == 1
        for made in tools:
            others = {other.kind.split()[-1] for other in tools if other is not made}
            noun = made.kind.split()[-1].removeprefix("get_").replace("_", " ")
            text = ask(lexicon, made).text.lower()
            assert noun in text or made.name.lower() in text
            assert made.kind not in others


def test_any_word_can_be_a_verb_and_stand_without_a_noun() -> None:
    lexicon = drawn(5, odd_verbs=1.0)
    verbs = {assembly.drawn_verb(lexicon) for _ in range(200)}
    assert len(verbs - VERBS.keys()) > 150
    slots = assembly.drawn_slots(lexicon)
    wordings = [
        wording
        for _ in range(50)
        for wording in assembly.requests(lexicon, "zup", "moon", slots, may_drop_noun=True)
    ]
    bare = [wording for wording in wordings if "moon" not in wording.lower()]
    assert 0.2 < len(bare) / len(wordings) < 0.6
    assert all("zup" in wording.lower() for wording in wordings)


def test_a_known_verb_is_never_without_its_noun() -> None:
    lexicon = drawn(6, odd_verbs=0.0)
    for _ in range(200):
        made = by_chance(lexicon)
        noun = made.kind.split(maxsplit=1)[1].replace("_", " ")
        assert all(noun in wording.lower() for wording in made.requests)


def test_values_can_stand_before_their_names() -> None:
    lexicon = drawn(7, values_first=1.0)
    for _ in range(100):
        question, answer = (turn["content"] for turn in look_up(lexicon)[:2])
        key = question.splitlines()[-1].removeprefix("What is ").removeprefix("Give me ")
        forms = [style.format(key.rstrip("?"), answer) for style, _ in VALUE_FIRST]
        assert any(form in question for form in forms)


def test_a_joke_is_the_tools_where_there_is_one() -> None:
    assert JOKER in {kind.names[0] for kind in SEEN}
    lexicon = drawn(8, has_one_joker=True, families=1.0, disguises=0.0)
    told = 0
    for writer in (no_call, long_chat):
        for _ in range(1500):
            conversation = writer(lexicon)
            names = {one["function"]["name"] for one in conversation.tools}
            has_joker = bool(names & {"tell_joke", "joke", "random_joke"})
            for asked, said in itertools.pairwise(conversation.messages):
                is_joke = said["content"].startswith(JOKE)
                told += is_joke
                assert not (is_joke and has_joker)
                if "joke" in asked["content"].lower() and said["role"] == "assistant":
                    assert is_joke or (calls(said["content"]) and said["content"] != NO_TOOL)
    assert told


def test_later_kinds_are_drawn_only_where_it_is_the_habit() -> None:
    later = {kind.names[0] for kind in LATER}

    def share(*, has_later_kinds: bool) -> float:
        lexicon = drawn(10, has_later_kinds=has_later_kinds, families=1.0)
        kinds = [made.kind for _ in range(300) for made in toolset(lexicon, 3)]
        return sum(kind in later for kind in kinds) / len(kinds)

    assert share(has_later_kinds=False) == 0
    assert 0.3 < share(has_later_kinds=True) < 0.6


def test_sets_of_tools_have_the_size_that_is_asked_for() -> None:
    lexicon = drawn(9, siblings=0.5)
    for count in (1, 2, 3, 4):
        for _ in range(50):
            tools = toolset(lexicon, count)
            assert len(tools) == count
            assert len({made.kind for made in tools}) == len({made.name for made in tools}) == count
