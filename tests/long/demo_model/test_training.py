"""The text is the same for the same seed, and a training can be taken up where it stopped."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from demo_model.training.batches import IGNORED, Encoder
from demo_model.training.chat import SLIP, Conversation, Template, assistant, user
from demo_model.training.corpus import FIRST, MAIN, conversations
from demo_model.training.curve import draw_curve
from demo_model.training.export import export
from demo_model.training.lexicon import Lexicon, Split
from demo_model.training.network import Shape
from demo_model.training.recipe import Recipe
from demo_model.training.training import Run
from tests.long.demo_model.tiny_training import TOKENIZER, trained

TINY = Recipe(shape=Shape(layers=2), rates=((0, 1.0), (4, 0.0)), batch_tokens=512)
DRAWS = ["invented", "word", "name", "full_name", "date", "time", "email", "code", "path", "phone"]


def test_the_same_seed_writes_the_same_text() -> None:
    first, second = ([*itertools.islice(conversations(MAIN, 3), 50)] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("kind", DRAWS)
def test_held_out_values_are_never_trained_on(kind: str) -> None:
    train = Lexicon(random.Random(1), Split.TRAIN)
    held_out = Lexicon(random.Random(2), Split.HELD_OUT)
    known = {getattr(train, kind)() for _ in range(2000)}
    assert not known & {getattr(held_out, kind)() for _ in range(500)}


def test_only_the_assistants_words_are_learned() -> None:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    encoder = Encoder(tokenizer, Template())
    for conversation in itertools.islice(conversations(MAIN, 4), 50):
        ((_, targets),) = encoder([conversation], seed=1)
        learned = tokenizer.decode(
            [at for at in targets if at != IGNORED], skip_special_tokens=False
        )
        said = [turn["content"] for turn in conversation.messages if turn["role"] == "assistant"]
        assert learned == "".join(f"{text}<|im_end|>" for text in said)


def test_the_first_token_of_a_guided_answer_is_not_learned() -> None:
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    said = (user("Hi"), assistant("Hello"), user("Name a fish"), assistant('{"fish": "Koi"}'))
    encoder = Encoder(tokenizer, Template())
    spellings = set()
    for seed in range(20):
        ((_, targets),) = encoder([Conversation(said, is_guided=True)], seed)
        pieces = [tokenizer.decode([id], skip_special_tokens=False) for id in targets if id >= 0]
        learned = "".join(pieces).removeprefix("Hello<|im_end|>")
        assert learned.removeprefix('"') == 'fish": "Koi"}<|im_end|>'
        spellings.add(tuple(pieces))
    assert len(spellings) > 1


def learned(conversation: Conversation) -> tuple[str, str]:
    """The text of the conversation, and the text of its learned tokens."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    ((ids, targets),) = Encoder(tokenizer, Template())([conversation], seed=1)
    assert len(ids) == len(targets)
    kept = [id for id in targets if id != IGNORED]
    return tuple(tokenizer.decode(part, skip_special_tokens=False) for part in (ids, kept))


@pytest.mark.parametrize("is_guided", [True, False])
def test_a_slip_is_read_and_what_follows_it_is_learned(is_guided: bool) -> None:
    said = f'{{"setup": "Why{SLIP}yyyyy{SLIP}", "end": "{SLIP} no no{SLIP}"}}'
    read, kept = learned(Conversation((user("Joke"), assistant(said)), is_guided=is_guided))
    assert read.endswith('"Whyyyyyy", "end": " no no"}<|im_end|>\n')
    assert kept.endswith('"setup": "Why", "end": ""}<|im_end|>')


def test_of_a_raw_prompt_the_continuation_is_learned() -> None:
    raw = Conversation((user("What is jazz?"), assistant(" Music.")), is_plain=True)
    assert learned(raw) == ("What is jazz? Music.", " Music.<|endoftext|>")


def test_a_stopped_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole, parts = trained(TINY, tmp_path / "whole", 4), trained(TINY, tmp_path / "parts", 2, 4)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_two_trainings_from_nothing_give_the_same_weights(tmp_path: Path) -> None:
    one, other = trained(TINY, tmp_path / "one", 3), trained(TINY, tmp_path / "other", 3)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_training_exports_and_draws(tmp_path: Path) -> None:
    trained(TINY, tmp_path / "run", 4)
    export(Run(tmp_path / "run"), TINY, tmp_path / "model")
    draw_curve(Run(tmp_path / "run").losses(), tmp_path / "loss.png")
    assert (tmp_path / "model" / "model.safetensors").stat().st_size > 0
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_rates_must_be_given_in_order() -> None:
    with pytest.raises(ValueError, match="rise"):
        replace(TINY, rates=((4, 1.0), (0, 0.0)))


@pytest.mark.parametrize("starts", [(1,), (0, 5, 3), (0, 0)])
def test_phases_must_rise_from_the_first_step(starts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rise from step 0"):
        replace(TINY, phases=tuple((start, MAIN) for start in starts))


def test_a_phase_lasts_until_the_next_one() -> None:
    recipe = replace(TINY, phases=((0, FIRST), (3, MAIN)))
    assert [recipe.mixture(step) is MAIN for step in range(5)] == [False, False, False, True, True]
