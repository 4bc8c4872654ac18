"""The shipped demo model answers as its card says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from demo_model.training import goldens
from demo_model.training.evaluation import SKILLS, evaluate
from demo_model.training.speaker import Speaker

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "demo_model" / "shipped"
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


def test_golden_prompts_get_the_answers_on_record(speaker: Speaker) -> None:
    asked = goldens.read(GOLDENS)
    answers = speaker.answers(asked)
    assert answers == [conversation.answer for conversation in asked]


def test_the_figures_hold_on_a_small_sample(speaker: Speaker) -> None:
    figures, _ = evaluate(speaker, SAMPLE)
    card = json.loads((FOLDER.parent / "figures.json").read_text())
    assert {figure.name for figure in figures} == {
        name for skill in SKILLS for name in skill.figures
    }
    assert [
        f"{figure.name}: {figure.share:.0%}, on the card {card[figure.name]:.0%}"
        for figure in figures
        if figure.share < card[figure.name] - SLACK
    ] == []
