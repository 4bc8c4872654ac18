"""One request as bars at two widths, and the list of recent ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.operate.live import trace_view
from proxy.operate.live.trace_view import MARK, bar, rows
from tests.unit.operate.live.samples import RECORD, console, printed, stage

WIDE = """\
req_6f1c  chatcmpl-5f0c
2026-03-01T12:00:00.250+00:00 POST /v1/chat/completions
model demo  tenant acme[b]  status 200  finish stop
tokens 21 (16 cached) + 48  TTFT 331.4 ms  queue 100.0 ms  total 800.0 ms  resent 1

request   ███████████████████████████████████████████████ 800.0 ms
queue     ███████                                         100.0 ms
triton          ████████                                  120.0 ms ModelUnavailable  endpoint 10.0.…
  routing       █                                           0.3 ms
triton                 ██████████████████████████████████ 575.0 ms endpoint 10.0.0.8:8001  tokens 48
  prefill                  ███                             25.0 ms
  decode                     ████████████████████████████ 469.0 ms"""
NARROW = """\
req_6f1c  chatcmpl-5f0c
2026-03-01T12:00:00.250+00:00 POST /v1/chat/completions
model demo  tenant acme[b]  status 200  finish stop
tokens 21 (16 cached) + 48  TTFT 331.4 ms  queue 100.0 ms
total 800.0 ms  resent 1

request   █████████████████████████████████████████ 800.0 ms
queue     ██████                                    100.0 ms
triton         ███████                              120.0 ms
          ModelUnavailable  endpoint 10.0.0.7:8001
  routing      █                                      0.3 ms
triton               ██████████████████████████████ 575.0 ms
          endpoint 10.0.0.8:8001  tokens 48
  prefill                ██                          25.0 ms
  decode                  █████████████████████████ 469.0 ms"""


def shown(record: dict[str, Any], width: int) -> str:
    out = console(width)
    trace_view.show_trace(record, out)
    return printed(out)


def test_a_wide_trace():
    assert shown(RECORD, 100) == WIDE


def test_a_narrow_trace_has_the_notes_below_their_stages():
    assert shown(RECORD, 60) == NARROW


def test_a_request_that_failed_before_it_had_a_model_or_a_stage():
    record = {
        "id": "r", "began_at": "2026-03-01T12:00:00.000+00:00", "error": "model_not_found",
        "status": 404, "duration_ms": 0.0, "stages": [],
    }  # fmt: skip
    lines = shown(record, 60).splitlines()
    assert lines[2:4] == ["status 404  error model_not_found", "total 0.0 ms"]
    assert lines[-1].startswith("request █")


def test_the_endpoints_of_the_request_are_named():
    text = shown({**RECORD, "endpoints": ["10.0.0.1:8001", "[fd00::2]:8001"]}, 100)
    assert "endpoint 10.0.0.1:8001  endpoint [fd00::2]:8001" in text


def test_text_of_a_stage_is_no_markup():
    record = {**RECORD, "stages": [stage("[b]odd", 0, 1, endpoint="[x]")]}
    assert "[b]odd" in shown(record, 100)
    assert "endpoint [x]" in shown(record, 100)


def listed(*data: dict[str, Any], **fields: Any) -> str:
    out = console(1000)
    answer = {"data": data, "kept_at_most": 10, **fields}
    trace_view.show_recent(answer, out)
    return printed(out)


def test_the_list_has_a_line_for_each_request():
    failed = {
        "id": "r2", "began_at": "2026-03-01T12:00:01.000+00:00", "error": "queue_full",
        "duration_ms": 3.0,
    }  # fmt: skip
    text = listed(RECORD, failed)
    first, one, two = text.splitlines()
    assert first.split() == [
        "request",
        "began",
        "model",
        "tenant",
        "ended",
        "in",
        "out",
        "TTFT",
        "ms",
    ]
    assert one.split() == [
        "req_6f1c",
        "12:00:00",
        "demo",
        "acme[b]",
        "stop",
        "21",
        "48",
        "331.4",
        "800.0",
    ]
    assert two.split() == ["r2", "12:00:01", "-", "-", "queue_full", "-", "-", "-", "3.0"]


def test_an_empty_list_says_why():
    assert "No request" in listed()


def named(*stages: dict) -> list[tuple[int, str]]:
    return [(depth, found["name"]) for depth, found in rows(stages)]


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
