"""A build as steps, each of which makes one folder.

The folder's name ends with a hash of all that the step depends on, so a folder that is there is
right: a second run does nothing, and a changed option redoes what depends on it and no more.
"""

from __future__ import annotations

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from triton_openai.build_engines.errors import BuildError
from triton_openai.build_engines.tool import Say

UNFINISHED = ".unfinished"
KEY_LENGTH = 16


class Step(ABC):
    """Subclasses say what they depend on, and how the folder is made."""

    name: str

    def __init__(self, store: Path, after: Sequence[Step] = ()) -> None:
        self.store = store
        self.after = tuple(after)

    @cached_property
    def key(self) -> str:
        """Changes when an input of this step, or of one before it, does."""
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
        """Everything that decides what is made, but for the steps before."""

    @abstractmethod
    def shown(self, target: Path) -> Iterable[str]:
        """Each command that would run, and each file that would be written."""

    @abstractmethod
    def make(self, target: Path, say: Say) -> None:
        """Fills the folder, which exists; what an interrupted run left may be in it.

        Raises:
            BuildError: it cannot be made.
        """

    def run(self, say: Say) -> None:
        """Makes the folder, whole or not at all."""
        target = self.folder.with_name(self.folder.name + UNFINISHED)
        target.mkdir(parents=True, exist_ok=True)
        self.make(target, say)
        target.rename(self.folder)


def run(steps: Sequence[Step], say: Say) -> None:
    """Those that are not done, in order.

    Raises:
        BuildError: a step failed; those before it stay done.
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
    """What `run` would do."""
    for step in steps:
        say(f"# {step.name}: {'is done' if step.is_done else step.folder}")
        for line in [] if step.is_done else step.shown(step.folder):
            say(line)


def sweep(steps: Sequence[Step], store: Path) -> None:
    """Removes what earlier options made there, once all steps are done."""
    kept = {step.folder for step in steps}
    for folder in store.iterdir():
        if folder.is_dir() and folder not in kept:
            shutil.rmtree(folder)
