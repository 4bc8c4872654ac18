"""What the benchmark beside llama.cpp makes of its measurements."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.bench import cpu, cpu_plot


def measured(*, wall_s: float, first_s: list[float], cpu_s: float = 0.4) -> cpu.Measured:
    return cpu.Measured(
        tokens=100, wall_s=wall_s, first_s=first_s, cpu_s=cpu_s, engine_cpu_s=cpu_s / 2,
        memory=300_000_000, engine_memory=200_000_000,
    )  # fmt: skip


def test_a_row_has_medians_of_the_rounds_and_first_tokens_of_all_their_streams():
    runs = [
        measured(wall_s=1.0, first_s=[0.1, 0.2]),
        measured(wall_s=2.0, first_s=[0.3, 0.4]),
        measured(wall_s=10.0, first_s=[0.5, 0.6]),
    ]
    assert cpu.row(runs) == pytest.approx(
        {
            "tokens_per_s": 50, "ttft_p50_ms": 400, "ttft_p95_ms": 600, "cpu_us": 4000,
            "engine_us": 2000, "memory_mb": 300, "engine_mb": 200,
        }
    )  # fmt: skip


@pytest.fixture
def rows() -> dict[str, dict[str, cpu.Row]]:
    ours = cpu.row([measured(wall_s=1.0, first_s=[0.1])])
    theirs = cpu.row([measured(wall_s=2.0, first_s=[0.3])])
    return {
        case.name: {cpu.OURS: ours, cpu.THEIRS: theirs}
        for case in (
            cpu.Case(streams=1, prompt_tokens=50),
            cpu.Case(streams=8, prompt_tokens=50, has_schema=True),
        )
    }


def test_a_ratio_above_one_means_that_we_are_faster(rows):
    ratios = cpu.ratios(rows)
    assert ratios["1 stream, 50 tokens, tokens/s"] == pytest.approx(2)
    assert ratios["1 stream, 50 tokens, TTFT"] == pytest.approx(3)


def test_each_line_of_the_table_has_a_cell_for_each_column(rows):
    report = {"rows": rows, "machine": "", "threads": 2, "llama_cpp": "", "rounds": 1}
    block = cpu.figures({**report, "max_tokens": 100})
    table = [line for line in block.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 4
    assert len({line.count("|") for line in table}) == 1


def test_the_plot_has_a_bar_for_each_server_and_figure_and_leaves_schemas_out(rows):
    plot = ElementTree.fromstring(cpu_plot.drawn(rows))
    bars = [one for one in plot.findall(".//{*}rect") if one.get("x") and one.get("y") != "12"]
    assert len(bars) == 2 * len(cpu_plot.PANELS)


def test_figures_replace_those_of_an_earlier_run_in_the_page_and_nothing_else():
    page = cpu.PAGE.read_text()
    once, again = (cpu.with_figures(page, text) for text in ("old figures", "new figures"))
    assert cpu.with_figures(once, "new figures") == again
    before, begin, rest = again.partition(cpu.MARKS[0])
    assert begin, "the page has no place for the figures"
    assert page.startswith(before)
    assert page.endswith(rest.partition(cpu.MARKS[1])[2])
