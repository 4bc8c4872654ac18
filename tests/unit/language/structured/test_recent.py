"""Recent: keeps what was used last, within its bytes."""

from __future__ import annotations

import pytest

from proxy.language.structured.recent import ENTRY_BYTES, Recent, fingerprint


def test_the_least_recently_used_values_are_forgotten_first():
    recent: Recent[str, int] = Recent(3 * (ENTRY_BYTES + 10), lambda value: 10)
    for key, value in (("a", 1), ("b", 2), ("c", 3)):
        recent.keep(key, value)
    assert recent.get("a") == 1
    recent.keep("d", 4)
    assert [recent.get(key) for key in "abcd"] == [1, None, 3, 4]


def test_a_value_that_is_put_again_counts_once():
    recent: Recent[str, int] = Recent(2 * ENTRY_BYTES)
    for value in range(9):
        recent.keep("a", value)
    recent.keep("b", 0)
    assert (recent.get("a"), recent.get("b")) == (8, 0)


def test_a_value_larger_than_the_bound_is_not_kept():
    recent: Recent[str, int] = Recent(2 * ENTRY_BYTES, lambda value: value)
    recent.keep("a", 1)
    recent.keep("b", 2 * ENTRY_BYTES)
    assert (recent.get("a"), recent.get("b")) == (1, None)


@pytest.mark.parametrize("other", [{"b": [1]}, {"a": [1.0]}, {"a": [True]}, {"a": 1}, {"a": ["1"]}])
def test_values_that_differ_have_other_fingerprints(other):
    assert fingerprint({"a": [1]}) == fingerprint({"a": [2 - 1]})
    assert fingerprint({"a": [1]}) != fingerprint(other)
