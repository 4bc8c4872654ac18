"""`python -m tests.long.hostile.compare BEFORE.json [AFTER.json]`: what report wrote, side by side.

Prints Markdown: status, the caller's wait, growth of the proxy and the bystander's largest gap.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.long.hostile.trial import Result

COLUMNS = ("status", "wait s", "CPU s", "MB", "gap ms", "harm")
NONE = ("-",) * len(COLUMNS)


def read(path: Path) -> dict[str, Result]:
    return {one["attack"]: Result(**one) for one in json.loads(path.read_text())}


def cells(result: Result | None) -> tuple[str, ...]:
    if result is None:
        return NONE
    statuses = " ".join(f"{'none' if int(one) < 0 else one}" for one in result.statuses)
    return (
        statuses or "-",
        f"{result.wall_s:.2f}",
        f"{result.proxy_cpu_s:.2f}",
        f"{result.proxy_growth_mb:.0f}",
        f"{result.gap_s * 1000:.0f}",
        "yes" if result.faults else "no",
    )


def table(files: list[tuple[str, dict[str, Result]]]) -> str:
    head = ["#", "attack", *(f"{name}: {column}" for name, _ in files for column in COLUMNS)]
    lines = [head, ["---"] * len(head)]
    every = {attack: one.finding for _, found in files for attack, one in found.items()}
    for attack, finding in sorted(every.items(), key=lambda pair: pair[1] or 99):
        figures = [cell for _, found in files for cell in cells(found.get(attack))]
        lines.append([str(finding or "-"), attack, *figures])
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?")
    given = parser.parse_args()
    files = [("before", read(given.before))]
    if given.after:
        files.append(("after", read(given.after)))
    print(table(files))  # noqa: T201  # a command's output


if __name__ == "__main__":
    main()
