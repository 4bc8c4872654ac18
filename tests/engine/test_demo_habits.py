"""What a phase of the training adds to the text, and that the phases before it keep theirs."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from triton_openai.build_engines.demo import assembly, results, siblings
from triton_openai.build_engines.demo.batches import Encoder
from triton_openai.build_engines.demo.catalogue import LATER, SEEN
from triton_openai.build_engines.demo.chat import Template
from triton_openai.build_engines.demo.copying import VALUE_FIRST, look_up
from triton_openai.build_engines.demo.corpus import THIRD, conversations
from triton_openai.build_engines.demo.evaluation import calls
from triton_openai.build_engines.demo.lexicon import Habits, Lexicon, Split, is_held_out
from triton_openai.build_engines.demo.oddwords import KEPT_BACK
from triton_openai.build_engines.demo.recipe import PHASES
from triton_openai.build_engines.demo.smalltalk import JOKE
from triton_openai.build_engines.demo.toolbox import ask, by_chance
from triton_openai.build_engines.demo.toolchat import JOKER, NO_TOOL, long_chat, no_call, toolset
from triton_openai.build_engines.demo.wordlists import VERBS

TOKENIZER = Path(__file__).parents[2] / "build_engines" / "demo" / "model" / "tokenizer.json"
# Of the text that the shipped model was trained on: another text makes another model.
WRITTEN = {
    0: "ffe61ed2c1ba09a0",
    150: "5f96c9019826aa18",
    4100: "e6010152dd80feec",
    5900: "d720ab0cd930841b",
    7388: "d5361558a78d4300",
    9757: "d4dc4f498728430e",
    12000: "0c626145926437e5",
    14950: "e1a498c0642f948b",
    15500: "38c1f027c584e0b4",
    18200: "9ff48042decffd9e",
    19800: "54667e709f82dab2",
}


@pytest.fixture(scope="module")
def pieces() -> tuple[str, ...]:
    return Encoder(Tokenizer.from_file(str(TOKENIZER)), Template()).pieces


def drawn(seed: int, **habits: Any) -> Lexicon:
    return Lexicon(random.Random(seed), Split.TRAIN, Habits(**habits))


@pytest.mark.parametrize("start", [start for start, _ in PHASES])
def test_the_text_of_a_phase_is_what_the_model_was_trained_on(
    start: int, pieces: tuple[str, ...]
) -> None:
    template, mixture = Template(), dict(PHASES)[start]
    written = itertools.islice(conversations(mixture, start, pieces), 60)
    text = "\0".join(template.whole(one) for one in written)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == WRITTEN[start]


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
