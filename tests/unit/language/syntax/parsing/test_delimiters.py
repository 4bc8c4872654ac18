"""Delimiters: marks that the end of a text may begin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.language.syntax.parsing.delimiters import Delimiters

LETTERS = st.text(alphabet="ab<", max_size=12)
MARKS = st.lists(st.text(alphabet="ab<", min_size=1, max_size=5), max_size=4)


@given(LETTERS, MARKS, st.integers(0, 12))
def test_the_longest_end_that_begins_a_mark_is_found(text, marks, start):
    ends = [text[at:] for at in range(min(start, len(text)), len(text))]
    expected = [end for end in ends if any(m != end and m.startswith(end) for m in marks)]
    found = Delimiters(marks).possible_start(text, min(start, len(text)))
    assert found == max(map(len, expected), default=0)
