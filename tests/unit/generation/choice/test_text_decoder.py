"""TextDecoder: the sum of what it gives equals decoding everything at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.generation.choice.answer_text import TextDecoder
from tests.strategies import cuts


def decoded(pieces: list[bytes], *, strips_leading_space: bool = False) -> str:
    decoder = TextDecoder(strips_leading_space=strips_leading_space)
    return "".join([*map(decoder.push, pieces), decoder.flush()])


@given(st.data(), st.text())
def test_any_cut_of_valid_text_gives_the_text(data, text):
    pieces = data.draw(cuts(text.encode()))
    assert decoded(pieces) == text


@given(st.data(), st.binary())
def test_invalid_bytes_become_what_a_whole_decode_makes_of_them(data, raw):
    pieces = data.draw(cuts(raw))
    assert decoded(pieces) == raw.decode("utf-8", errors="replace")


@given(st.data(), st.text())
def test_one_leading_space_is_dropped_for_sentencepiece(data, text):
    pieces = data.draw(cuts(f" {text}".encode()))
    assert decoded(pieces, strips_leading_space=True) == text
