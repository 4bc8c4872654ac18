"""The short form of `make bench`: every figure is there, the table shows it, plots are drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.bench import table
from tests.bench.front import draw
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
    assert table.of(report) in done.stdout
    assert len(list(tmp_path.glob("front-*.png"))) == 4


def test_plots_leave_out_what_a_way_does_not_measure(tmp_path):
    whole = {"tokens_per_s": 2.0, "gap_p99_ms": 1.0}
    rows = {f"{way}, {kind}, 1": whole for way in WAYS for kind in KINDS}
    draw({**rows, "perf_analyzer, flood, 1": {"tokens_per_s": 2.0}}, tmp_path)
    assert len(list(tmp_path.glob("front-*.png"))) == 4


def test_the_table_replaces_what_stands_between_its_marks(tmp_path, monkeypatch):
    report = {
        "machine": "2 cores", "rounds": 5, "seconds": 9,
        "sections": {"streams": {"proxy, flood, 1": {"tokens_per_s": 1234.4, "proxy_us": 9.87}}},
    }  # fmt: skip
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "front.json").write_text(json.dumps(report))
    file = tmp_path / "page.md"
    file.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    monkeypatch.setattr(table, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["table", str(file)])
    table.main()
    text = file.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "| proxy, flood, 1 | 1,234 |  |" in text
    assert "| 9.9 |" in text
    assert "old" not in text
