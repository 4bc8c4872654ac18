"""A tokenizer or detokenizer that stands still, and runs on: Triton's Python backend then hands its
answers to other requests. No caller gets another one's text.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.fixtures.stalls import PYTHON_MODELS, Stalls


@pytest.mark.parametrize("part", PYTHON_MODELS[:2])
def test_no_answer_has_text_of_another_stream(victim, part):
    stalls, random = Stalls(victim.url, victim.process.pid), Random(part)
    stalls.learn()
    for _ in range(2):
        stalls.stall(part, random)
    assert not stalls.differences
    assert stalls.counts["answers"] > stalls.counts["errors"]
