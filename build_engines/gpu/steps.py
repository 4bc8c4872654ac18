"""The build steps of one model on GPUs: each runs one of upstream's tools and checks the result."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from build_engines import tool
from build_engines.errors import BuildError
from build_engines.gpu import adapter, verify
from build_engines.gpu.device import Device
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.quantization import environment
from build_engines.gpu.quantization.calibration_text import FILE, CalibrationText
from build_engines.gpu.quantization.environment import Environment, installed_torch
from build_engines.gpu.toolkit import Toolkit
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


PROGRAM = Path(environment.__file__).with_name("quantize_checkpoint.py")


class Quantized(ToolStep):
    """Runs quantize_checkpoint.py. TensorRT-LLM takes no part, so its version is not in the key."""

    def __init__(
        self,
        store: Path,
        options: GpuOptions,
        *,
        weights: Step,
        texts: CalibrationText,
        packages: Environment,
        check: Check,
    ) -> None:
        def command(target: Path, after: Sequence[Path]) -> list[str]:
            program = [str(environment.python(after[2])), "-I", str(PROGRAM)]
            return [*program, *arguments(options, after[0], after[1], target)]

        super().__init__(
            "quantized", store, [weights, texts, packages], command=command, check=check
        )
        self._options = options

    def inputs(self) -> Iterable[str]:
        """The arguments, and what the program does with them; not where the program is."""
        program = hashlib.sha256(PROGRAM.read_bytes()).hexdigest()
        weights, texts = (Path(f"{step.name}-{step.key}") for step in self.after[:2])
        return [program, *arguments(self._options, weights, texts, Path("target"))]


def arguments(options: GpuOptions, weights: Path, texts: Path, target: Path) -> list[str]:
    """The arguments of the quantization program, for options that ask for one."""
    found = ["--weights", str(weights), "--calibration", str(texts / FILE)]
    found += ["--output", str(target), "--format", str(options.quantization)]
    return [*found, "--kv_cache", options.kv_cache.dtype, "--dtype", options.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """The surroundings of a build. store: the folder of the model's steps."""

    artifacts: Path
    store: Path
    toolkit: Toolkit
    device: Device


@dataclass(frozen=True, kw_only=True)  # without slots: a cached property
class StepFactory:
    options: GpuOptions
    weights: Step
    context: BuildContext

    def checked(self) -> Checked:
        return Checked(
            "check", self.context.store, [self.weights], lambda folders: verify.weights(*folders)
        )

    def checked_adapters(self, adapters: Sequence[Step]) -> list[Checked]:
        """One step if there are adapters, else none."""
        options, version = self.options, self.context.toolkit.version
        if options.lora is None:
            return []

        def check(folders: Sequence[Path]) -> None:
            adapter.check(folders, options, version)

        shape = [options.lora.max_rank, options.engine, options.tensor_parallel, version]
        about = [str(each) for each in shape]
        return [Checked("check_adapters", self.context.store, adapters, check, about)]

    def served(self) -> list[Step]:
        """The steps from the weights to the served folder; none if the weights are served."""
        return [] if self.options.quantization is None else self._quantized()

    @cached_property
    def texts(self) -> list[CalibrationText]:
        """One step, if the quantization measures texts.

        Raises:
            BuildError: the user's file cannot be read, or has no texts.
        """
        options = self.options
        if not options.is_calibrated:
            return []
        file, samples = options.calibration.file, options.calibration_samples
        return [CalibrationText(self.context.store, file, samples)]

    def _quantized(self) -> list[Step]:
        context = self.context
        packages = Environment(context.artifacts, torch=installed_torch())
        quantized = Quantized(
            context.store,
            self.options,
            weights=self.weights,
            texts=self.texts[0],
            packages=packages,
            check=lambda folder: verify.checkpoint(folder, self.weights.folder, self.options),
        )
        return [packages, *self.texts, quantized]
