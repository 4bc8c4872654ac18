"""One request as bars at two widths, and the list of recent ones."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.operate.live import trace_view
from proxy.operate.live.trace_view import MARK, bar
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


def shown(record: dict[str, Any], width: int) -> str:
    out = console(width)
    trace_view.show_trace(record, out)
    return printed(out)


def test_a_wide_trace():
    assert shown(RECORD, 100) == WIDE


def test_text_of_a_stage_is_no_markup():
    record = {**RECORD, "stages": [stage("[b]odd", 0, 1, endpoint="[x]")]}
    assert "[b]odd" in shown(record, 100)
    assert "endpoint [x]" in shown(record, 100)


numbers = st.floats(-1e6, 1e6)


@given(numbers, numbers, st.floats(0, 1e6), st.integers(1, 200))
def test_a_bar_is_one_run_of_marks_as_wide_as_its_field(begin, duration, total, width):
    drawn = bar(begin, duration, total, width)
    assert len(drawn) == width
    assert len(drawn.split()) == 1
    assert set(drawn) <= {MARK, " "}
