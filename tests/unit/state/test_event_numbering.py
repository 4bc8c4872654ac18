"""Events are numbered the same however the stream is cut into pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.state.event_numbering import EventNumbering, after_event

STREAM = (
    b": keep-alive\n\n"
    b': request_id "x"\n\n'
    b'data: {"a":1}\n\n'
    b": queue 7\n\n"
    b'event: error\ndata: {"b":"id: 2\\n\\n"}\n\n'
    b': timing {"c":1}\n\n'
    b"data: [DONE]\n\n"
)
PARTS = [
    b': request_id "x"\n\nid: 1\ndata: {"a":1}\n\n',
    b'id: 2\nevent: error\ndata: {"b":"id: 2\\n\\n"}\n\n',
    b': timing {"c":1}\n\nid: 3\ndata: [DONE]\n\n',
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_parts_are_the_same_however_the_stream_is_cut(cuts: list[int]):
    places = [0, *sorted(cuts), len(STREAM)]
    numbering, parts, comments = EventNumbering(), [], []
    for begin, end in pairwise(places):
        more, seen = numbering.push(STREAM[begin:end])
        parts += more
        comments += seen
    assert parts + numbering.flush() == PARTS
    assert comments == [b": keep-alive\n\n", b": queue 7\n\n"]
    assert numbering.events == 3


@pytest.mark.parametrize("after", range(4))
def test_the_rest_begins_after_the_event(after: int):
    assert after_event(b"".join(PARTS), after) == b"".join(PARTS[after:])


def test_text_that_looks_like_an_id_is_none():
    data = b'id: 1\ndata: {"a":"id: 2"}\n\nid: 2\ndata: 1\n\nid: 3\ndata: 1\n\n'
    assert after_event(data, 2) == b"id: 3\ndata: 1\n\n"
