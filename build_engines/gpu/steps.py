"""The steps of a GPU build: each runs one of upstream's tools and checks the result."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from build_engines import tool
from build_engines.errors import BuildError
from build_engines.step import Step
from build_engines.tool import Say

# The folder to fill, and the folders of the earlier steps -> a command line.
Command = Callable[[Path, Sequence[Path]], list[str]]
Check = Callable[[Path], None]


class ToolStep(Step):
    """Runs a command, then checks what it wrote. about: inputs that are not in the command."""

    def __init__(
        self,
        name: str,
        store: Path,
        after: Sequence[Step],
        *,
        command: Command,
        check: Check,
        about: Sequence[str] = (),
    ) -> None:
        super().__init__(store, after)
        self.name = name
        self._command = command
        self._check = check
        self._about = tuple(about)

    def inputs(self) -> Iterable[str]:
        """The command with names in place of folders, so that artifacts/ can be moved."""
        before = [Path(f"{step.name}-{step.key}") for step in self.after]
        return [*self._command(Path("target"), before)[1:], *self._about]

    def shown(self, target: Path) -> Iterable[str]:
        return [tool.shown(self._command(target, [step.folder for step in self.after]))]

    def make(self, target: Path, say: Say) -> None:
        for left in target.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        tool.run(self._command(target, [step.folder for step in self.after]), log=self.log, say=say)
        try:
            self._check(target)
        except BuildError as error:
            raise BuildError(
                f"the tool ended without an error, but {error} (its output: {self.log})"
            ) from error


class Checked(Step):
    """Checks the fetched folders before tools run for hours; its own folder stays empty.

    check: gets the folders of the earlier steps. about: further inputs of the check.
    """

    def __init__(
        self,
        name: str,
        store: Path,
        after: Sequence[Step],
        check: Callable[[Sequence[Path]], None],
        about: Sequence[str] = (),
    ) -> None:
        super().__init__(store, after)
        self.name = name
        self._check = check
        self._about = about

    def inputs(self) -> Iterable[str]:
        return self._about

    def shown(self, target: Path) -> Iterable[str]:
        return [f"check {step.folder}" for step in self.after]

    def make(self, target: Path, say: Say) -> None:
        self._check([step.folder for step in self.after])
