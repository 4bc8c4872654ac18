"""The short form of `make bench`: every figure is there, and the page shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.bench.front import page
from tests.fixtures.stack import ROOT

WAYS = ("direct", "proxy")
KINDS = ("flood", "paced")


def test_the_short_form_measures_everything(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.front", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "BENCH_SHORT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "front.json").read_text())
    sections = report["sections"]
    streams = sections["streams"]
    assert {f"{way}, {kind}, {n}" for way in WAYS for kind in KINDS for n in (1, 16)} <= {*streams}
    assert all(row["tokens_per_s"] > 0 for rows in sections.values() for row in rows.values())
    paced = streams["proxy, paced, 16"]
    assert (paced["tokens"], paced["errors"]) == (16 * 50, 0)
    assert paced["gap_p99_ms"] >= paced["gap_p50_ms"] > 0
    assert "16 streams, 20 alternatives" in sections["requests"]
    assert "50 idle streams" in sections["idle"]
    assert (tmp_path / "benchmarks.md").read_text() == page(report)
    assert "| proxy, paced, 16 |" in page(report)
