"""disjoint_branches: whether the branches of a `oneOf` exclude each other."""

from __future__ import annotations

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.language.structured.keywords import PAIRS_AT_MOST, are_disjoint

VALUES = [0, 1, 1.0, True, False, None, "", "1", [1], [True], {"a": 1}, {"a": True}, {}]
MANY = PAIRS_AT_MOST * 3


def const(name: str, value: object) -> dict:
    return {"type": "object", "properties": {name: {"const": value}}, "required": [name]}


@given(st.lists(st.lists(st.sampled_from(VALUES), min_size=1, max_size=2), min_size=2, max_size=4))
def test_branches_that_list_values_are_disjoint_if_they_share_none(lists):
    branches = [{"enum": values} for values in lists]
    accepted = [sum(jsonschema_rs.is_valid(one, value) for one in branches) for value in VALUES]
    assert are_disjoint(branches, {}) is (max(accepted) < 2)


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        ([{"const": i} for i in range(MANY)], True),
        ([*({"const": i} for i in range(MANY)), {"enum": ["x", 5.0]}], False),
        ([const("kind", i) for i in range(MANY)], True),
        ([*(const("kind", i) for i in range(MANY)), const("kind", 0)], False),
        ([*(const("kind", i) for i in range(MANY)), const("other", 0)], False),
        ([{"type": "string"}, {"type": "integer"}] * PAIRS_AT_MOST, False),
        ([{"type": "string"}, {"type": "number"}, const("a", 1), const("a", 2)], True),
        ([{"type": "number"}, {"type": "integer"}], False),
        ([{"type": "object", "properties": {"a": const("b", i)}, "required": ["a"]}
          for i in range(MANY)], True),
    ],
)  # fmt: skip
def test_many_branches_need_one_fact_that_separates_all(branches, expected):
    assert are_disjoint(branches, {}) is expected
