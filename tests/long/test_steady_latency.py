"""Latency stays flat while the engine makes more tokens a second than responses can be sent: 256
streams of 100 tokens a second.

STEADY_LOAD_S: how long; 60 by default. With more than 500, give pytest a longer --timeout.
"""

from __future__ import annotations

import os
import statistics
import sys

from tests.bench.scripted_stack import running
from tests.fixtures.scripted import scripted

STREAMS, TOKENS, WINDOW_S = 256, 1000, 5.0
MOST = min(1000 * len(os.sched_getaffinity(0)), 4000)  # responses a second
START = 2  # windows in which the streams begin
COUNTED = ("generated_tokens", "responses", "answers", "wall_s")
SMOOTH = 4  # the 99th percentile of the gaps, in medians
FLAT = 3  # a machine is busy for a while; a queue that grows does not become shorter


def test_more_tokens_than_responses_can_carry_wait_no_longer_at_the_end_than_at_first():
    seconds = float(os.environ.get("STEADY_LOAD_S", "60"))
    with running({"hundred": scripted(repeats=True, step_ms=10.0)}) as bench:
        windows = list(bench.steady("hundred", STREAMS, TOKENS, seconds=seconds, window_s=WINDOW_S))
    for window in windows:
        sys.stdout.write(f"{window}\n")
    done = {name: sum(window[name] for window in windows) for name in COUNTED}
    answers = done["answers"] + STREAMS
    assert done["generated_tokens"] > 2 * done["responses"], "tokens were joined"
    assert done["responses"] < MOST * done["wall_s"] * 1.1 + 2 * answers
    late = [window["late_p50_ms"] for window in windows[START:]]
    third = len(late) // 3
    assert min(late[-third:]) < FLAT * statistics.median(late[:third])
    gaps = [window["gap_p99_ms"] / window["gap_p50_ms"] for window in windows[START:]]
    assert statistics.median(gaps) < SMOOTH
