"""Recent: keeps what was used last, within its bytes."""

from __future__ import annotations

import pytest

from proxy.language.structured.recent import ENTRY_BYTES, Recent, fingerprint


def test_values_are_kept_within_the_bound_of_memory():
    recent: Recent[str, int] = Recent(3 * (ENTRY_BYTES + 10), lambda value: value)
    for key in "abc":
        recent.keep(key, 10)
    recent.keep("too large", 3 * ENTRY_BYTES)
    assert recent.get("a") == 10
    recent.keep("d", 10)
    assert [recent.get(key) for key in ("a", "b", "c", "d", "too large")] == [
        10,
        None,
        10,
        10,
        None,
    ]


@pytest.mark.parametrize("other", [{"b": [1]}, {"a": [1.0]}, {"a": [True]}, {"a": 1}, {"a": ["1"]}])
def test_values_that_differ_have_other_fingerprints(other):
    assert fingerprint({"a": [1]}) == fingerprint({"a": [2 - 1]})
    assert fingerprint({"a": [1]}) != fingerprint(other)
