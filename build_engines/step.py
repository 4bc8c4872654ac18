"""Build steps. Each one makes one folder.

The folder's name ends with a hash of the step's inputs, so an existing folder is up to date: a
second run does nothing, and a changed option redoes only the steps that depend on it.
"""

from __future__ import annotations

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from build_engines.errors import BuildError
from build_engines.tool import Say

UNFINISHED = ".unfinished"
KEY_LENGTH = 16


class Step(ABC):
    """One step. Subclasses define their inputs and how to make the folder."""

    name: str

    def __init__(self, store: Path, after: Sequence[Step] = ()) -> None:
        self.store = store
        self.after = tuple(after)

    @cached_property
    def key(self) -> str:
        """A hash of the inputs of this step and of the steps before it."""
        inputs = [self.name, *self.inputs(), *(step.key for step in self.after)]
        return hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:KEY_LENGTH]

    @property
    def folder(self) -> Path:
        return self.store / f"{self.name}-{self.key}"

    @property
    def is_done(self) -> bool:
        return self.folder.is_dir()

    @property
    def log(self) -> Path:
        return self.store / f"{self.name}.log"

    @abstractmethod
    def inputs(self) -> Iterable[str]:
        """Everything that decides the result, except the earlier steps."""

    @abstractmethod
    def shown(self, target: Path) -> Iterable[str]:
        """The commands that would run, and the files that would be written."""

    @abstractmethod
    def make(self, target: Path, say: Say) -> None:
        """Fills the existing folder, which may hold the rest of an interrupted run.

        Raises:
            BuildError: the step failed.
        """

    def run(self, say: Say) -> None:
        """Makes the folder completely or not at all."""
        target = self.folder.with_name(self.folder.name + UNFINISHED)
        target.mkdir(parents=True, exist_ok=True)
        self.make(target, say)
        target.rename(self.folder)


def run(steps: Sequence[Step], say: Say) -> None:
    """Runs the steps that are not done, in order.

    Raises:
        BuildError: a step failed; the steps before it stay done.
    """
    missing = [step for step in steps if not step.is_done]
    for number, step in enumerate(missing, 1):
        say(f"[{number}/{len(missing)}] {step.name}")
        try:
            step.run(_named(step.name, say))
        except BuildError as error:
            raise BuildError(f"{step.name}: {error}") from error


def _named(name: str, say: Say) -> Say:
    return lambda line: say(f"{name}: {line}")


def show(steps: Sequence[Step], say: Say) -> None:
    """Prints what `run` would do."""
    for step in steps:
        say(f"# {step.name}: {'is done' if step.is_done else step.folder}")
        for line in [] if step.is_done else step.shown(step.folder):
            say(line)


def sweep(steps: Sequence[Step], store: Path) -> None:
    """Removes folders that earlier options made, once all steps are done."""
    kept = {step.folder for step in steps}
    for folder in store.iterdir():
        if folder.is_dir() and folder not in kept:
            shutil.rmtree(folder)
