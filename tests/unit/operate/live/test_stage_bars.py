"""Bars of stages: their order, their place on the scale, and that they stay within it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.operate.live.stage_bars import MARK, bar, rows
from tests.unit.operate.live.samples import stage


def named(*stages: dict) -> list[tuple[int, str]]:
    return [(row.depth, row.stage["name"]) for row in rows(stages)]


def test_stages_are_in_the_order_of_time_each_with_its_parts():
    late, part, early, deep = (
        *(stage("late", 5, 5), stage("part", 6, 1, 0)),
        *(stage("early", 1, 2), stage("deep", 7, 1, 1)),
    )
    expected = [(0, "early"), (0, "late"), (1, "part"), (2, "deep")]
    assert named(late, part, early, deep) == expected


@pytest.mark.parametrize("parent", [0, 1, 7, -1])
def test_a_stage_without_an_earlier_parent_is_shown_by_itself(parent):
    assert named(stage("odd", 0, 1, parent)) == [(0, "odd")]


@pytest.mark.parametrize(
    ("begin", "duration", "expected"),
    [
        (0, 10, "##########"),
        (0, 5, "#####     "),
        (5, 5, "     #####"),
        (4.5, 1, "    ##    "),
        (3, 0, "   #      "),
        (10, 0, "         #"),
        (-5, 7, "##        "),
        (8, 99, "        ##"),
        (50, 1, "         #"),
    ],
)
def test_a_bar_of_ten_characters_for_ten_ms(begin, duration, expected):
    assert bar(begin, duration, 10, 10) == expected.replace("#", MARK)


def test_a_request_that_took_no_time_has_the_shortest_bar():
    assert bar(0, 0, 0, 4) == f"{MARK}   "


numbers = st.floats(-1e6, 1e6)


@given(numbers, numbers, st.floats(0, 1e6), st.integers(1, 200))
def test_a_bar_is_one_run_of_marks_as_wide_as_its_field(begin, duration, total, width):
    drawn = bar(begin, duration, total, width)
    assert len(drawn) == width
    assert len(drawn.split()) == 1
    assert set(drawn) <= {MARK, " "}
