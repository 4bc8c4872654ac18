"""`python -m tests.long.hostile.report [URL]`: every attack in turn, and a table of what it did.

Without a URL it starts and stops a stack of its own, and starts it again where an attack ends it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tests.long.hostile import trial
from tests.long.hostile.arena import Arena
from tests.long.hostile.attack import Attack
from tests.long.hostile.catalogue import EVERY
from tests.long.hostile.trial import Result

HEAD = (
    *("attack", "status", "wall s", "CPU s", "proxy MB", "triton MB", "gap ms", "small ms"),
    "verdict",
)


def results(arena: Arena, attacks: list[Attack]) -> Iterator[Result]:
    for attack in attacks:
        watch = arena.ready_for(attack)
        result = trial.run(attack, arena.target, watch)
        if not arena.is_alive:
            result.faults.append("the proxy was ended")
        yield result


def row(result: Result) -> tuple[str, ...]:
    statuses = " ".join(
        f"{count}x{status}" if count > 1 else str(status)
        for status, count in sorted(result.statuses.items())
    )
    return (
        result.attack,
        statuses,
        f"{result.wall_s:.2f}",
        f"{result.proxy_cpu_s:.2f}",
        f"{result.proxy_growth_mb:.0f}",
        f"{result.triton_growth_mb:.0f}",
        f"{result.gap_s * 1000:.0f}",
        f"{result.small_wait_s * 1000:.0f}",
        "; ".join(result.faults) or "ok",
    )


def table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(HEAD, *rows, strict=True)][:-1]
    lines = []
    for cells in (HEAD, *rows):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        lines.append("  ".join([*padded, cells[-1]]))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="a server on this machine; none: a stack of its own")
    parser.add_argument("--only", default="", help="a part of an attack's name")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    attacks = [attack for attack in EVERY if given.only in attack.name]
    attacks.sort(key=lambda attack: attack.is_on_engine)
    found = []
    with Arena(given.url) as arena:
        for result in results(arena, attacks):
            found.append(result)
            print(table([row(result)]).splitlines()[1], flush=True)  # noqa: T201  # progress
    failed = sum(bool(result.faults) for result in found)
    print(f"\n{table(list(map(row, found)))}\n")  # noqa: T201  # a command's output
    print(f"{len(found)} attacks, {failed} of them harm")  # noqa: T201  # a command's output
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
