"""A guide that follows what another engine generated: as far as it was, in bounded time."""

from __future__ import annotations

import json

import numpy as np
import pytest

from guides.state import REPLAY_AT_ONCE, GuideState, GuideTooSlow
from port import BadParameter, Guide
from tests.fixtures.guide_info import allowed_ids, filled

SCHEMA = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "tag",
        "begin": "<call>",
        "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
        "end": "</call>",
    },
}
GUIDES = (
    Guide("json", ""),
    Guide("json_schema", json.dumps(SCHEMA)),
    Guide("regex", r"\d{4}-\d\d(, (yes|no|ça va))?"),
    Guide("ebnf_grammar", 'root ::= "(" root ")" | [0-9]+'),
    Guide("structural_tag", json.dumps(TAG)),
)


def never() -> bool:
    return False


@pytest.mark.parametrize("guide", GUIDES, ids=[guide.kind for guide in GUIDES])
def test_a_replayed_guide_is_where_the_first_one_was(guide, compiler, mask):
    compiled = compiler.compile(guide).result()
    random = np.random.default_rng(2)
    first, tokens = GuideState(compiled), []
    for _ in range(30):
        row = filled(mask, [first])[0].copy()
        replayed = GuideState(compiled)
        replayed.replay(tokens, never)
        assert (filled(mask, [replayed])[0] == row).all()
        tokens.append(int(random.choice(allowed_ids(row))))
        first.take(tokens[-1])
        if first.is_terminated:
            ended = GuideState(compiled)
            ended.replay(tokens, never)
            assert ended.is_terminated
            return


def test_a_token_that_the_guide_refuses_is_named_with_its_position(compiler, vocabulary):
    state = GuideState(compiler.compile(Guide("regex", "[ab]+")).result())
    a, c = vocabulary.table.index(b"a"), vocabulary.table.index(b"c")
    with pytest.raises(BadParameter, match=rf"token {c} at position 301 does not follow") as caught:
        state.replay([a] * 301 + [c, a], never)
    assert caught.value.param == "resume_from"


def test_a_replay_ends_when_its_sequence_does_or_when_it_takes_too_long(compiler, vocabulary):
    compiled = compiler.compile(Guide("regex", "[ab]+")).result()
    ids = [vocabulary.table.index(b"a")] * (3 * REPLAY_AT_ONCE)
    asked: list[None] = []

    def is_over() -> bool:
        asked.append(None)
        return len(asked) > 1

    GuideState(compiled).replay(ids, is_over)
    assert len(asked) == 2
    slow = GuideState(compiled)
    slow.spent_s = 1000.0
    with pytest.raises(GuideTooSlow):
        slow.replay(ids, never)
