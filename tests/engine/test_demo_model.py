"""The demo model that ships with the project does what its card says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.fixtures.examples import examples
from triton_openai.build_engines.demo import goldens
from triton_openai.build_engines.demo.evaluation import SKILLS, evaluate
from triton_openai.build_engines.demo.speaker import Speaker

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build_engines" / "demo" / "model"
GOLDENS = Path(__file__).with_name("goldens.json")
SAMPLE = 20  # prompts a skill: small enough for CI
SLACK = 0.2  # what so small a sample may lie under the card's figure


@pytest.fixture(scope="module")
def speaker() -> Iterator[Speaker]:
    """On one thread: its sums are the same everywhere, and others on the core do not hold it up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Speaker(FOLDER)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def test_the_folder_is_small_and_within_its_bounds(speaker: Speaker) -> None:
    config = json.loads((FOLDER / "config.json").read_text())
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 24_000_000
    assert config["max_position_embeddings"] >= 4096
    assert sum(parameter.numel() for parameter in speaker.model.parameters()) <= 16_000_000


def test_both_end_tokens_end_an_answer(tokenizer: Tokenizer) -> None:
    ends = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    assert json.loads((FOLDER / "generation_config.json").read_text())["eos_token_id"] == ends


def test_tool_call_marks_are_single_tokens_that_decoding_keeps(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<tool_call>{}</tool_call>", add_special_tokens=False).ids
    assert ids[0] == tokenizer.token_to_id("<tool_call>")
    assert ids[-1] == tokenizer.token_to_id("</tool_call>")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<tool_call>{}</tool_call>"


@settings(max_examples=examples(300))
@given(text=st.text())
def test_any_text_comes_back_from_its_tokens(text: str) -> None:
    loaded = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    ids = loaded.encode(text, add_special_tokens=False).ids
    assert loaded.decode(ids, skip_special_tokens=False) == text


def test_golden_prompts_get_the_answers_on_record(speaker: Speaker) -> None:
    asked = goldens.read(GOLDENS)
    answers = speaker.answers(asked)
    assert answers == [conversation.answer for conversation in asked]


def test_the_figures_hold_on_a_small_sample(speaker: Speaker) -> None:
    figures, _ = evaluate(speaker, SAMPLE)
    card = json.loads((FOLDER / "figures.json").read_text())
    assert {figure.name for figure in figures} == {
        name for skill in SKILLS for name in skill.figures
    }
    assert [
        f"{figure.name}: {figure.share:.0%}, on the card {card[figure.name]:.0%}"
        for figure in figures
        if figure.share < card[figure.name] - SLACK
    ] == []
