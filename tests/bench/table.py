"""bench/front.json as a table: what `make bench` prints, and what docs/performance.md shows.

usage: python -m tests.bench.table [FILE]        FILE: its table is written anew
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.fixtures.stack import ROOT

BEGIN, END = "<!-- figures of make bench -->", "<!-- end of figures -->"
COLUMNS = {
    "tokens/s": ("tokens_per_s", 0),
    "tokens an arrival": ("tokens_an_arrival", 1),
    "TTFT p50 ms": ("ttft_p50_ms", 1),
    "TTFT p99 ms": ("ttft_p99_ms", 1),
    "gap p50 ms": ("gap_p50_ms", 1),
    "gap p99 ms": ("gap_p99_ms", 1),
    "proxy µs": ("proxy_us", 1),
    "tritonserver µs": ("tritonserver_us", 1),
    "tokenizer µs": ("tokenizer_us", 1),
    "engine µs": ("engine_us", 1),
    "detokenizer µs": ("detokenizer_us", 1),
    "client µs": ("client_us", 1),
    "proxy MB": ("proxy_mb", 0),
}


def of(report: dict[str, Any]) -> str:
    """Markdown. µs: CPU microseconds a token; what a way does not measure is left empty."""
    lines = [
        f"{report['machine']}; medians of {report['rounds']}, "
        f"{report['seconds']} s in all; CPU is microseconds a token.",
        "",
        "| | " + " | ".join(COLUMNS) + " |",
        "|---|" + "---:|" * len(COLUMNS),
    ]
    for rows in report["sections"].values():
        for name, row in rows.items():
            cells = (
                f"{row[key]:,.{digits}f}" if key in row else "" for key, digits in COLUMNS.values()
            )
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put(report: dict[str, Any], file: Path) -> None:
    """Replaces what stands between the marks of a page."""
    before, _, rest = file.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{file} has no place for figures: {BEGIN} … {END}")
    file.write_text(f"{before}{BEGIN}\n{of(report)}\n{END}{after}")


def main() -> None:
    report = json.loads((ROOT / "bench" / "front.json").read_text())
    if len(sys.argv) == 1:
        sys.stdout.write(of(report) + "\n")
    else:
        put(report, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
