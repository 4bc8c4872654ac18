"""Ten thousand patches under Codex's grammar, over families of each way of writing: all conform."""

from __future__ import annotations

import pytest

from port import Guide
from tests.fixtures.custom_tools import PATCH, PATCHES, Walks, answer, guides
from tests.fixtures.guide_info import VOCAB_SIZE

# JSON, JSON in a list, a keyword in Python's syntax, elements with and without lines, nested ones.
FAMILIES = ("hermes", "granite", "pythonic", "qwen3_coder", "glm45", "deepseek_v32", "minimax_m3")
CALLS, MOST_TOKENS = 10_000, 400


@pytest.mark.parametrize("family", FAMILIES)
def test_every_patch_conforms(family, compiler, vocabulary):
    guide = guides(family, (PATCHES,), must_call=True, in_parallel=False).answer
    compiled = compiler.compile(Guide(guide.kind.value, guide.text)).result()
    walks = Walks(compiled.grammar, vocabulary.table[:VOCAB_SIZE], vocabulary.end_ids, seed=1)
    count = 0
    while count < CALLS / len(FAMILIES):
        if (text := walks.one(MOST_TOKENS)) is None:
            continue
        count += 1
        (call,) = answer(family, (PATCHES,), text, size=11).calls
        assert PATCH.fullmatch(call.arguments), text
