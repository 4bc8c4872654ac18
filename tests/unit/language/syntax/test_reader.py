"""Reader and Delimiters: what a grammar reads is the same however the text is cut."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.language.syntax.reader import Delimiters, Reader
from tests.strategies import cuts

MARKS = ("<a>", "</a>", "\n</a>")


def read(pieces: list[str], leaves_partial: bool = False) -> tuple[list[str], str, str]:
    """Marks in order, the text between them, and what is left."""
    reader, marks, parts = Reader(), [], []

    def grammar():
        while mark := (
            yield from reader.until(Delimiters(MARKS), parts.append, leaves_partial=leaves_partial)
        ):
            marks.append(reader.take(len(mark)))

    steps = grammar()
    for piece in pieces:
        reader.feed(piece)
        next(steps, None)
    reader.close()
    next(steps, None)
    return marks, "".join(parts), reader.rest()


@given(st.data(), st.text(alphabet="</a>\n", max_size=30))
def test_marks_and_text_are_the_same_for_every_cut(data, text):
    pattern = "|".join(map(re.escape, sorted(MARKS, key=len, reverse=True)))
    expected = re.findall(pattern, text), re.sub(pattern, "", text), ""
    assert read(data.draw(cuts(text))) == expected
    assert read(list(text)) == expected


def test_the_begin_of_a_mark_at_the_end_is_text_unless_it_is_left():
    assert read(["x</"]) == ([], "x</", "")
    assert read(["x</"], leaves_partial=True) == ([], "x", "</")


def test_recorded_text_is_returned():
    reader = Reader()
    reader.feed("abcdef")
    reader.take(1)
    reader.record()
    reader.take(2)
    reader.take(1)
    assert (reader.recorded(), reader.recorded(), reader.rest()) == ("bcd", "", "ef")


LETTERS = st.text(alphabet="ab<", max_size=12)
DRAWN_MARKS = st.lists(st.text(alphabet="ab<", min_size=1, max_size=5), max_size=4)


@given(LETTERS, DRAWN_MARKS, st.integers(0, 12))
def test_the_longest_end_that_begins_a_mark_is_found(text, marks, start):
    ends = [text[at:] for at in range(min(start, len(text)), len(text))]
    expected = [end for end in ends if any(m != end and m.startswith(end) for m in marks)]
    found = Delimiters(marks).possible_start(text, min(start, len(text)))
    assert found == max(map(len, expected), default=0)
