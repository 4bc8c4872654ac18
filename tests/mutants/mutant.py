"""One small fault, put into a copy of the repository, and the tests that must notice it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
LINKED = (".venv",)
COPIED = ("artifacts",)  # built models: the engine's code in them is replaced at a server's start
NOTHING_FAILED, TESTS_FAILED = 0, 1  # pytest's exit statuses
OPTIONS = ("-p", "no:cacheprovider", "--timeout", "120")  # a mutant that hangs is caught, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`before` occurs once in the file `path`; `after` replaces it.

    fault: what a user would see. tests: what pytest runs, all of it part of `make test`.
    """

    fault: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        file = root / self.path
        text = file.read_text()
        if text.count(self.before) != 1:
            raise ValueError(f"{self.path} has {self.before!r} {text.count(self.before)} times")
        file.write_text(text.replace(self.before, self.after))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """failed: the first test that failed; None: the mutant survived."""

    mutant: Mutant
    failed: str | None
    seconds: float


@contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """A copy of all files that git tracks or would track, with the environment linked."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    with TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        for name in filter(None, listed.stdout.split("\0")):
            if not os.path.lexists(root / name):
                continue  # deleted, but not committed yet
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name, follow_symlinks=False)
        for name in LINKED:
            (copy / name).symlink_to((root / name).resolve())
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, symlinks=True)
        yield copy


def first_failure(copy: Path, tests: tuple[str, ...]) -> str | None:
    """Runs the tests in the copy.

    Raises:
        RuntimeError: pytest ran no test to its end.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", *OPTIONS, *tests]
    ended = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    if ended.returncode == NOTHING_FAILED:
        return None
    failures = [
        line.removeprefix(word).split(" - ")[0].strip()
        for line in ended.stdout.splitlines()
        for word in ("FAILED ", "ERROR ")
        if line.startswith(word)
    ]
    if ended.returncode != TESTS_FAILED or not failures:
        raise RuntimeError(f"pytest: exit status {ended.returncode}\n{ended.stdout[-3000:]}")
    return failures[0]
