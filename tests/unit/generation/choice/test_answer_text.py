"""TextDecoder: its pieces add up to a decode of everything at once. StopMatcher: what passes is the
text before the stop string that is complete first.
"""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.generation.choice.answer_text import TextDecoder
from proxy.language.syntax.stop_matcher import StopMatcher
from tests.strategies import cuts

LETTERS = st.text(alphabet="ab\n", max_size=30)
STOPS = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=4)


def reference(text: str, stops: list[str]) -> tuple[str, bool]:
    """Letter by letter, with no cleverness."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


def matched(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    matcher = StopMatcher(stops)
    return "".join([*map(matcher.push, pieces), matcher.flush()]), matcher.stop is not None


@given(st.data(), LETTERS, STOPS)
def test_every_cut_agrees_with_the_reference(data, text, stops):
    pieces = data.draw(cuts(text))
    assert matched(pieces, stops) == reference(text, stops)


@pytest.mark.parametrize(
    ("pieces", "passed"),
    [
        (["Hel", "lo\nUs", "er: hi"], ["Hel", "lo", ""]),
        (["a\n", "\n", "b"], ["a", "\n", "\nb"]),
        (["\nUser", "s", " all"], ["", "\nUsers", " all"]),
    ],
)
def test_only_the_possible_start_of_a_stop_string_is_held_back(pieces, passed):
    matcher = StopMatcher(["\nUser:"])
    assert [matcher.push(piece) for piece in pieces] == passed


@given(st.data(), LETTERS, STOPS)
def test_an_included_stop_string_ends_the_text(data, text, stops):
    matcher = StopMatcher(stops, includes_stop=True)
    sent = "".join([*map(matcher.push, data.draw(cuts(text))), matcher.flush()])
    before, is_stopped = reference(text, stops)
    assert (matcher.stop is not None) is is_stopped
    assert text.startswith(sent)
    assert sent == (before + matcher.stop if is_stopped else text)
    assert not is_stopped or matcher.stop in stops


def test_the_choices_of_a_request_share_what_their_stop_strings_cost():
    """With every prefix stored for every choice this was 1 GB."""
    stops = ["\U0001f600" + letter * 1020 for letter in "abcd"]
    tracemalloc.start()
    try:
        matchers = [StopMatcher(stops) for _ in range(128)]
        for matcher in matchers:
            matcher.push("\U0001f600aaaa")
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 3_000_000


@pytest.mark.parametrize(
    ("stop", "piece"), [("a" * 1023 + "b", "a"), ("ab" * 511 + "c", "ab"), ("a" * 1023 + "b", "ca")]
)
def test_text_that_nearly_is_a_stop_string_costs_the_same_for_each_character(stop, piece):
    def spent(pieces: int) -> float:
        matcher, start = StopMatcher([stop]), time.thread_time()
        for _ in range(pieces):
            matcher.push(piece)
        return time.thread_time() - start

    spent(10)  # builds what later matchers share
    short = min(spent(500) for _ in range(3))  # shorter than the stop string
    assert min(spent(5_000) for _ in range(3)) < 40 * short + 0.01


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
