"""Latency stays flat while the engine makes more tokens a second than responses can be sent: 256
streams of 100 tokens a second.

STEADY_LOAD_S: how long; 60 by default. With more than 500, give pytest a longer --timeout.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

from tests.bench.scripted_stack import running
from tests.fixtures.scripted import scripted
from tests.fixtures.stack import ROOT

STREAMS, TOKENS, WINDOW_S = 256, 1000, 5.0
MOST = min(1000 * len(os.sched_getaffinity(0)), 4000)  # responses a second
START = 2  # windows in which the streams begin
FLAT = 3  # a machine is busy for a while; a queue that grows does not become shorter


def test_more_tokens_than_responses_can_carry_wait_no_longer_at_the_end_than_at_first():
    seconds = float(os.environ.get("STEADY_LOAD_S", "60"))
    body = {
        "model": "hundred",
        "messages": [{"role": "user", "content": "Hello!"}],
        "max_tokens": TOKENS,
        "stream": True,
        "include_timings": True,
    }
    plan = {"path": "/v1/chat/completions", "body": body, "streams": STREAMS}
    plan |= {"seconds": seconds, "window_s": WINDOW_S}
    with running({"hundred": scripted(repeats=True, step_ms=10.0)}) as bench:
        stack, began = bench.stack, time.monotonic()
        plan |= {"host": "127.0.0.1", "port": stack.port}
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.steady_load"],
            input=json.dumps(plan).encode(),
            stdout=subprocess.PIPE,
            cwd=ROOT,
            check=True,
        )
        engine, spent_s = stack.engine("hundred"), time.monotonic() - began
    windows = json.loads(done.stdout)
    for window in windows:
        sys.stdout.write(f"{window}\n")
    answers = sum(window["answers"] for window in windows) + STREAMS
    assert engine["generated_tokens"] > 2 * engine["responses"], "tokens were joined"
    assert engine["responses"] < MOST * spent_s * 1.1 + 2 * answers
    late = [window["late_p50_ms"] for window in windows[START:]]
    third = len(late) // 3
    assert min(late[-third:]) < FLAT * statistics.median(late[:third])
