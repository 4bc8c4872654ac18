"""What `make bench` shows of its figures: a table in a page, and plots."""

from __future__ import annotations

from tests.bench import table
from tests.bench.front import draw

WAYS = ("direct", "proxy")
KINDS = ("flood", "paced")


def test_plots_leave_out_what_a_way_does_not_measure(tmp_path):
    whole = {"tokens_per_s": 2.0, "gap_p99_ms": 1.0}
    rows = {f"{way}, {kind}, 1": whole for way in WAYS for kind in KINDS}
    draw({**rows, "perf_analyzer, flood, 1": {"tokens_per_s": 2.0}}, tmp_path)
    assert len(list(tmp_path.glob("front-*.png"))) == 4


def test_the_table_replaces_what_stands_between_its_marks(tmp_path):
    report = {
        "machine": "2 cores", "rounds": 5, "seconds": 9,
        "sections": {"streams": {"proxy, flood, 1": {"tokens_per_s": 1234.4, "proxy_us": 9.87}}},
    }  # fmt: skip
    file = tmp_path / "page.md"
    file.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.put(report, file)
    text = file.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "| proxy, flood, 1 | 1,234 |  |" in text
    assert "| 9.9 |" in text
    assert "old" not in text
