from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api.http.json_shape import exceeds_depth

VALUES = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(VALUES, st.integers(1, 5))
def test_it_is_the_depth_of_the_value(value, most):
    assert exceeds_depth(json.dumps(value).encode(), most) is (depth(value) > most)


@pytest.mark.parametrize("text", [b'"[[[["', b'{"a": "\\"[[[["}', b"]]]]", b'"', b'"\\', b"\\"])
def test_brackets_in_strings_and_without_a_match_are_not_counted(text):
    assert not exceeds_depth(text, 2)


@pytest.mark.parametrize("piece", [b'\\"', b"[", b'"', b"{}", b'[""', b"\\"])
def test_its_time_is_linear_whatever_the_text(piece):
    began = time.process_time()
    exceeds_depth(b'"' + piece * 500_000, 64)
    assert time.process_time() - began < 2


def test_its_time_is_the_same_however_much_depth_is_allowed():
    text = b"[" * 300_000 + b"]" * 300_000
    assert seconds(text, 100) < 10 * seconds(text, 1)


def seconds(text: bytes, most: int) -> float:
    began = time.process_time()
    assert exceeds_depth(text, most)
    return time.process_time() - began
