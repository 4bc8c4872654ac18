"""The tables of results: printed, kept as JSON, and two of them side by side."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from tests.long.hostile import compare, report
from tests.long.hostile.trial import Result

RESULT = Result(
    attack="regex: (a|a)*b",
    finding=1,
    statuses={200: 2, -1: 1},
    wall_s=1.5,
    proxy_cpu_s=0.25,
    proxy_growth_mb=12.0,
    triton_growth_mb=0.0,
    gap_s=0.4,
    own_gap_s=0.3,
    faults=["a gap"],
    sample="",
)


def test_a_row_says_what_happened():
    (head, row) = report.table([report.row(RESULT)]).splitlines()
    assert head.split()[:2] == ["attack", "#"]
    assert row.split("  ")[0] == "regex: (a|a)*b"
    assert row.endswith("a gap")
    assert "-1 2x200" in row


def test_two_runs_stand_side_by_side(tmp_path):
    for name, result in (("before", RESULT), ("after", replace(RESULT, faults=[], gap_s=0.03))):
        (tmp_path / f"{name}.json").write_text(json.dumps([asdict(result)]))
    files = [(name, compare.read(tmp_path / f"{name}.json")) for name in ("before", "after")]
    line = compare.table(files).splitlines()[2]
    assert line.startswith("| 1 | regex: (a\\|a)*b | 200 none | 1.50 | 0.25 | 12 | 400 | yes |")
    assert line.endswith("| 30 | no |")


def test_an_attack_that_one_run_lacks_has_no_figures():
    line = compare.table([("before", {RESULT.attack: RESULT}), ("after", {})]).splitlines()[2]
    assert line.endswith("| yes | - | - | - | - | - | - |")
