"""Reader: what a grammar reads is the same however the text is cut."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.language.syntax.parsing.delimiters import Delimiters
from proxy.language.syntax.parsing.reader import Reader
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
