"""CPU of the proxy for a token: this tree against another one, which must be built like it.

    .venv/bin/python -m tests.bench.two_trees OTHER_TREE [ROUNDS]

Both run `serve` over the scripted engine, one Triton each. Runs alternate; prints the medians.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import yaml

from tests.bench.figures import medians
from tests.bench.scripted_stack import ARTIFACTS, PORTS, SCRIPTED, BenchStack
from tests.fixtures.stack import ROOT, Stack, free_port

STREAMS, TOKENS, ROUNDS = 16, 8_000, 11


def started(running: ExitStack, name: str, tree: Path) -> BenchStack:
    folder = ARTIFACTS / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "models.yaml"
    file.write_text(yaml.safe_dump({"models": {"flood": SCRIPTED["flood"]}}))
    environment = {one: str(free_port()) for one in PORTS}
    environment |= {"MODELS_FILE": str(file), "ARTIFACTS_DIR": str(folder)}
    stack = Stack(["serve"], environment, folder / "serve.log", root=tree)
    running.callback(stack.stop)
    stack.wait_ready(within_s=600)
    return BenchStack(stack)


def main(other: Path, rounds: int) -> None:
    runs: dict[str, list[dict[str, float]]] = {"this tree": [], "other": []}
    with ExitStack() as running:
        stacks = {
            name: started(running, name.replace(" ", "-"), tree)
            for name, tree in (("this tree", ROOT), ("other", other))
        }
        for stack in stacks.values():
            stack.through_proxy("flood", STREAMS, TOKENS // 10)
        for _ in range(rounds):
            for name, stack in stacks.items():
                runs[name].append(stack.through_proxy("flood", STREAMS, TOKENS))
    for name, found in runs.items():
        least = min(one["proxy_us"] for one in found)
        median = medians(found)["proxy_us"]
        sys.stdout.write(f"{name:10} proxy {median:6.2f} us a token (least {least:.2f})\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS)
