"""Recent: keeps what was used last, within its bytes."""

from __future__ import annotations

import pytest

from proxy.language.structured.recent import fingerprint


@pytest.mark.parametrize("other", [{"b": [1]}, {"a": [1.0]}, {"a": [True]}, {"a": 1}, {"a": ["1"]}])
def test_values_that_differ_have_other_fingerprints(other):
    assert fingerprint({"a": [1]}) == fingerprint({"a": [2 - 1]})
    assert fingerprint({"a": [1]}) != fingerprint(other)
