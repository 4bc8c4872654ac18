"""Runs one `pip install` and reports how far it is. Standard library only.

usage: python -m proxy.operate.packages.pip_step NUMBER/COUNT NAME -- COMMAND...

pip prints nothing for minutes while it downloads and unpacks. On a terminal it draws a bar for each
download; in every case a line each few seconds says what has arrived. Called by `on_demand`, and by
`make` with the Python of the new environment, because the folder of `sysconfig` is watched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

EVERY_S = 5.0
# To download, and on the disk, in MB; tests/unit/operate/packages compares those of the locks.
# torch's are those of its CPU build; a CUDA build needs up to 5,000 on the disk.
MEGABYTES = {
    "requirements.lock": (150, 470),
    "torch": (190, 740),
    "requirements-build.lock": (50, 160),
    "requirements-dev.lock": (105, 275),
    "xgrammar": (1, 4),
}
CPU_INDEX = "/cpu"  # how the address of PyTorch's index of CPU builds ends
SECONDS_PER_MEGABYTE = 0.06  # to download and unpack, of what is then on the disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`number`: such as 1/2. `download_mb`, `installed_mb`: about; None where nobody knows."""

    number: str
    name: str
    download_mb: int | None
    installed_mb: int | None

    @classmethod
    def named(cls, number: str, name: str, *, torch_index: str = "") -> Step:
        """
        Args:
            name: a lock file, or a package such as torch==2.13.0.
            torch_index: the address of another index for torch.
        """
        has_cuda = name.startswith("torch") and not torch_index.rstrip("/").endswith(CPU_INDEX)
        known = None if has_cuda else MEGABYTES.get(name.partition("==")[0].rpartition("/")[2])
        download_mb, installed_mb = known or (None, None)
        return cls(number=number, name=name, download_mb=download_mb, installed_mb=installed_mb)

    def beginning(self) -> str:
        size = "the CPU build takes 740 MB, the CUDA build up to 5 GB: some minutes"
        if self.installed_mb is not None:
            expected = _span(self.installed_mb * SECONDS_PER_MEGABYTE)
            size = f"{self.download_mb} MB to download, {self.installed_mb} MB on disk: {expected}"
        return f"step {self.number}: installing {self.name} ({size})"

    def downloading(self, elapsed_s: float, downloaded: int) -> str:
        total = "" if self.download_mb is None else f" of about {self.download_mb}"
        return f"{self.name}: {_span(elapsed_s)}, {downloaded / 1e6:.0f}{total} MB downloaded"

    def unpacking(self, elapsed_s: float, unpacking_s: float, installed: int) -> str:
        """`unpacking_s`: since the first file was there."""
        done_mb, total_mb = installed / 1e6, self.installed_mb
        if total_mb is None:
            return f"{self.name}: {_span(elapsed_s)}, {done_mb:.0f} MB installed"
        line = f"{self.name}: {_span(elapsed_s)}, {done_mb:.0f} of about {total_mb} MB installed"
        if done_mb >= total_mb or not unpacking_s:
            return line
        return f"{line}, about {_span(unpacking_s * (total_mb / done_mb - 1))} left"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if seconds >= 100 else f"{seconds:.0f} s"


def size(folder: Path) -> int:
    """Bytes of the files below, without Python's own caches, whose size no index knows."""
    total = 0
    for parent, folders, names in os.walk(folder):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # pip moves files about
                continue
    return total


def watch(
    is_over: Callable[[float], bool], measured: Callable[[], tuple[int, int]], *, step: Step
) -> Iterable[str]:
    """A line each time that `is_over` returns False.

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


def run(step: Step, command: Sequence[str], *, say: Callable[[str], None]) -> int:
    """The exit status of the command. It draws its bars where its output goes to a terminal."""
    packages = Path(sysconfig.get_path("purelib"))
    before, draws_bars = size(packages), sys.stdout.isatty()
    say(step.beginning())
    with tempfile.TemporaryDirectory(prefix="install-", dir=sys.prefix) as downloads:

        def measured() -> tuple[int, int]:
            return size(Path(downloads)), max(0, size(packages) - before)

        process = subprocess.Popen(
            [*command, *([] if draws_bars else ["--quiet"])],
            env={**os.environ, "TMPDIR": downloads},  # where pip puts what it downloads
        )
        try:
            for line in watch(_waiting(process), measured, step=step):
                if not draws_bars or size(packages) > before:  # a bar moves while it downloads
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
    step = Step.named(number, name, torch_index=os.environ.get("TORCH_INDEX_URL", ""))

    def say(line: str) -> None:
        sys.stdout.write(f"[make] {line}\n")
        sys.stdout.flush()

    try:
        return run(step, command, say=say)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
