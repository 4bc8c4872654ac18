"""Runs one step of `make`'s installation and shows how far it is. Standard library only.

usage: python -m supply_chain.install_step NUMBER NAME -- COMMAND...

pip says nothing for minutes while it downloads and unpacks. On a terminal it draws a bar for each
download; everywhere a line each ten seconds says what has arrived. Run by the new environment's own
Python, so that its folder is that of `sysconfig`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

EVERY_S = 10.0
STEPS = 3
# To download, and on the disk, in MB; tests/unit/supply_chain compares the lock's.
# torch is its CPU build's; that of CUDA brings some 4,000 more.
MEGABYTES = {"torch": (190, 740), "requirements.lock": (240, 840)}
# What most homes' lines and disks need for a MB of it: a third of that to download.
SECONDS_A_MEGABYTE = 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`download_mb`, `installed_mb`: about; None where nobody knows."""

    number: int
    name: str
    download_mb: int | None
    installed_mb: int | None

    @classmethod
    def named(cls, number: int, name: str, *, has_cuda: bool) -> Step:
        """`name`: such as torch==2.13.0."""
        known = None if has_cuda else MEGABYTES.get(name.partition("==")[0])
        download_mb, installed_mb = known or (None, None)
        return cls(number=number, name=name, download_mb=download_mb, installed_mb=installed_mb)

    def beginning(self) -> str:
        size = "CPU build 740 MB, CUDA build up to 5 GB: some minutes"
        if self.installed_mb is not None:
            spent = _span(self.installed_mb * SECONDS_A_MEGABYTE)
            size = (
                f"{self.download_mb} MB to download, {self.installed_mb} MB on disk: about {spent}"
            )
        return f"step {self.number}/{STEPS}: installing {self.name} ({size})"

    def downloading(self, elapsed_s: float, downloaded: int) -> str:
        total = "" if self.download_mb is None else f" of about {self.download_mb}"
        return f"{self.name}: {_span(elapsed_s)}, {downloaded / 1e6:.0f}{total} MB downloaded"

    def unpacking(self, elapsed_s: float, unpacking_s: float, installed: int) -> str:
        """`unpacking_s`: since the first file was there."""
        done_mb, total_mb = installed / 1e6, self.installed_mb
        if total_mb is None:
            return f"{self.name}: {_span(elapsed_s)}, {done_mb:.0f} MB installed"
        said = f"{self.name}: {_span(elapsed_s)}, {done_mb:.0f} of about {total_mb} MB installed"
        if done_mb >= total_mb or not unpacking_s:
            return said
        return f"{said}, about {_span(unpacking_s * (total_mb / done_mb - 1))} left"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if seconds >= 100 else f"{seconds:.0f} s"


def size(folder: Path) -> int:
    """Bytes of the files below; Python's own caches are not counted, as no index knows of them."""
    total = 0
    for parent, folders, names in os.walk(folder):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # pip moves them about
                continue
    return total


def watch(
    is_over: Callable[[float], bool], measured: Callable[[], tuple[int, int]], *, step: Step
) -> Iterable[str]:
    """A line each time that `is_over` has waited in vain.

    Args:
        is_over: waits so many seconds, or until the command has ended; whether it has.
        measured: bytes downloaded and installed.
    """
    began, before, first_at = time.monotonic(), 0, 0.0
    while not is_over(EVERY_S):
        now, (downloaded, installed) = time.monotonic(), measured()
        if not installed:
            yield step.downloading(now - began, downloaded)
        elif installed == before:
            yield f"{step.name}: {_span(now - began)}, compiling what is there"
        else:
            first_at = first_at or now - EVERY_S
            yield step.unpacking(now - began, now - first_at, installed)
        before = installed


def run(step: Step, command: list[str], *, shows_bars: bool, say: Callable[[str], None]) -> int:
    """The exit status of the command. `shows_bars`: its output goes to a terminal."""
    packages = Path(sysconfig.get_path("purelib"))
    before = size(packages)
    say(step.beginning())
    with tempfile.TemporaryDirectory(prefix="install-", dir=sys.prefix) as downloads:

        def measured() -> tuple[int, int]:
            return size(Path(downloads)), max(0, size(packages) - before)

        process = subprocess.Popen(
            [*command, *([] if shows_bars else ["--quiet"])],
            env={**os.environ, "TMPDIR": downloads},  # where pip puts what it downloads
        )
        try:
            for line in watch(_waiting(process), measured, step=step):
                if not shows_bars or size(packages) > before:  # a bar moves while it downloads
                    say(line)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    return process.returncode


def _waiting(process: subprocess.Popen[bytes]) -> Callable[[float], bool]:
    def is_over(seconds: float) -> bool:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    return is_over


def main(arguments: list[str]) -> int:
    number, name, _, *command = arguments
    index = os.environ.get("TORCH_INDEX_URL", "")
    has_cuda = name.startswith("torch") and not index.rstrip("/").endswith("/cpu")
    step = Step.named(int(number), name, has_cuda=has_cuda)

    def say(line: str) -> None:
        sys.stdout.write(f"[make] {line}\n")
        sys.stdout.flush()

    try:
        return run(step, command, shows_bars=sys.stdout.isatty(), say=say)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
