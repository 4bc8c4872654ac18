"""`python -m tests.hostile.report [URL]`: every attack in turn, and a table of what it did.

Without a URL it starts and stops a stack of its own, and starts it again where an attack ends it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from tests.fixtures.stack import ROOT
from tests.hostile import processes, stand, trial
from tests.hostile.attack import Attack, Target
from tests.hostile.catalogue import EVERY
from tests.hostile.processes import Processes
from tests.hostile.trial import MB, Result
from tests.hostile.watch import Watch

HEAD = ("attack", "#", "status", "wall s", "CPU s", "proxy MB", "triton MB", "gap ms", "verdict")
SETTLED_BYTES = 1_500 * MB  # a stack of our own that is larger is started anew


class Server:
    """The server under attack, which `start` brings up again after its end."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._stack = contextlib.ExitStack()
        self._watches: dict[bool, Watch] = {}
        self.target = Target(host="127.0.0.1", port=0, timeout_s=given.timeout)
        self.watched = Processes(())

    def start(self) -> None:
        self.stop()
        port = self._port()
        host = urlsplit(self._given.url).hostname if self._given.url else "127.0.0.1"
        self.target = Target(host=host, port=port, timeout_s=self._given.timeout)
        pids = self._given.pid
        self.watched = processes.of_pids(pids) if pids else processes.of_port(port)

    def _port(self) -> int:
        if self._given.url:
            return urlsplit(self._given.url).port or 80
        return self._stack.enter_context(stand.running(self._given.root)).port

    def stop(self) -> None:
        self._stack.close()
        self._watches.clear()

    def watch(self, attack: Attack) -> Watch:
        """Raises RuntimeError where its stream does not get to its pace."""
        if attack.is_on_engine not in self._watches:
            watch = Watch(
                self.target,
                self.watched,
                is_on_engine=attack.is_on_engine,
                guard_bytes=int(self._given.guard_mb * MB),
            )
            self._watches[attack.is_on_engine] = self._stack.enter_context(watch)
        watch = self._watches[attack.is_on_engine]
        if not watch.wait_flowing():
            raise RuntimeError("the bystander's stream does not flow")
        return watch

    @property
    def needs_restart(self) -> bool:
        if self._given.url:
            return False
        return (
            not self.watched.proxies
            or not self.watched.are_alive
            or processes.tree_rss(self.watched.proxies) > SETTLED_BYTES
        )


def results(server: Server, attacks: list[Attack]) -> Iterator[Result]:
    for attack in attacks:
        if not server.watched.proxies or server.needs_restart:
            server.start()
        try:
            watch = server.watch(attack)
        except (RuntimeError, OSError, ValueError):
            server.start()
            watch = server.watch(attack)
        result = trial.run(attack, server.target, watch)
        if not server.watched.are_alive:
            result.faults.append("the proxy was ended")
        yield result


def row(result: Result) -> tuple[str, ...]:
    statuses = " ".join(
        f"{count}x{status}" if count > 1 else str(status)
        for status, count in sorted(result.statuses.items())
    )
    return (
        result.attack,
        str(result.finding or "-"),
        statuses,
        f"{result.wall_s:.2f}",
        f"{result.proxy_cpu_s:.2f}",
        f"{result.proxy_growth_mb:.0f}",
        f"{result.triton_growth_mb:.0f}",
        f"{result.gap_s * 1000:.0f}",
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
    parser.add_argument("--pid", type=int, action="append", default=[], help="of the proxy")
    parser.add_argument("--root", type=Path, default=ROOT, help="the code that is served")
    parser.add_argument("--only", default="", help="a part of an attack's name")
    parser.add_argument("--json", type=Path, help="where the results are written, too")
    parser.add_argument("--timeout", type=float, default=30, help="seconds a caller waits")
    parser.add_argument("--guard-mb", type=float, default=4_000, help="the proxy is killed above")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    attacks = [attack for attack in EVERY if given.only in attack.name]
    server, found = Server(given), []
    try:
        for result in results(server, attacks):
            found.append(result)
            print(table([row(result)]).splitlines()[1], flush=True)  # noqa: T201  # progress
            if given.json:
                given.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    finally:
        server.stop()
    failed = sum(bool(result.faults) for result in found)
    print(f"\n{table(list(map(row, found)))}\n")  # noqa: T201  # a command's output
    print(f"{len(found)} attacks, {failed} of them harm")  # noqa: T201  # a command's output
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
