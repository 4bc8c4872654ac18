"""`python -m tests.long.hostile.siege [URL]`: honest streams while the whole catalogue is sent.

Prints what the honest streams saw, with --baseline beside a run without attack, and the memory of
every process at the start, in the middle and at the end. Honest callers come from 127.0.0.1,
attackers from 127.0.0.2.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.fixtures.stack import ROOT
from tests.long.hostile import processes, stand
from tests.long.hostile.attack import Target
from tests.long.hostile.processes import Processes

HONEST, ATTACKER = "127.0.0.1", "127.0.0.2"
KEYS = (
    *("started", "finished", "failed", "refused", "tokens_per_s"),
    *("median_gap_ms", "p99_gap_ms", "largest_gap_ms", "p99_first_token_ms"),
)


def begun(module: str, plan: dict[str, Any]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.long.hostile.{module}"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdin.write(json.dumps(plan))
    process.stdin.close()
    return process


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    answer = process.stdout.read()
    process.stdout.close()
    process.wait()
    return json.loads(answer)


def memory(watched: Processes) -> dict[str, float]:
    """MB of each process, by its id and name."""
    found = {}
    for pid in (*watched.proxies, *watched.triton, *_sandboxes(watched)):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found[f"{pid} {_name(process)}"] = round(processes.rss(pid) / 1e6, 1)
    return found


def _sandboxes(watched: Processes) -> list[int]:
    known, found = {*watched.proxies, *watched.triton}, list[int]()
    for pid in watched.proxies:
        with contextlib.suppress(psutil.NoSuchProcess):  # a child may end while we look
            found += [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return [pid for pid in found if pid not in known]


def _name(process: psutil.Process) -> str:
    words = [word for word in process.cmdline() if "model_repository/" in word]
    return words[0].split("/")[1] if words else process.name()


def besieged(given: argparse.Namespace, target: Target, watched: Processes) -> dict[str, Any]:
    """With attackers unless the rate is 0."""
    times = {"start": memory(watched)}
    streams = {"streams": given.streams, "tokens": given.tokens, "seconds": given.seconds}
    honest = begun("honest", {**streams, "target": asdict(replace(target, source=HONEST))})
    attackers = None
    if given.rate:
        plan = {"rate": given.rate, "seconds": given.seconds, "seed": given.seed}
        attackers = begun("attackers", {**plan, "target": asdict(replace(target, source=ATTACKER))})
    time.sleep(given.seconds / 2)
    times["middle"] = memory(watched)
    found = {"honest": ended(honest), "attackers": attackers and ended(attackers)}
    time.sleep(given.settle_s)
    times["end"] = memory(watched)
    return {**found, "is_alive": watched.are_alive, "memory_mb": times}


def text(found: dict[str, Any], baseline: dict[str, Any] | None) -> str:
    lines = [f"{'honest streams':24}{'siege':>12}{'baseline' if baseline else '':>12}"]
    for key in KEYS:
        other = baseline["honest"][key] if baseline else ""
        lines.append(f"{key:24}{found['honest'][key]:>12}{other:>12}")
    lines += ["failures: " + failure for failure in found["honest"]["failures"]]
    lines += ["", f"attackers: {json.dumps(found['attackers'])}", ""]
    times = found["memory_mb"]
    lines.append(f"{'MB of each process':40}" + "".join(f"{name:>10}" for name in times))
    for name in dict.fromkeys(name for each in times.values() for name in each):
        cells = "".join(f"{each.get(name, '-'):>10}" for each in times.values())
        lines.append(f"{name:40}{cells}")
    lines.append(f"the proxy lives: {found['is_alive']}")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="a server on this machine; none: a stack of its own")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rate", type=float, default=20, help="requests of attackers a second")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=300, help="of each honest stream")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settle-s", type=float, default=10, help="before memory is read last")
    parser.add_argument("--baseline", action="store_true", help="the same without attack, first")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    with contextlib.ExitStack() as ends:
        if given.url:
            parts = urlsplit(given.url)
            host, port = parts.hostname or "127.0.0.1", parts.port or 80
        else:
            host, port = "127.0.0.1", ends.enter_context(stand.running()).port
        target, watched = Target(host=host, port=port), processes.of_port(port)
        baseline = None
        if given.baseline:
            quiet = argparse.Namespace(**{**vars(given), "rate": 0})
            baseline = besieged(quiet, target, watched)
        found = besieged(given, target, watched)
    print(text(found, baseline))  # noqa: T201  # a command's output
    sys.exit(bool(found["honest"]["failed"]) or not found["is_alive"])


if __name__ == "__main__":
    main()
