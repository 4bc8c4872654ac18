"""The build step that quantizes a checkpoint for TensorRT-LLM's PyTorch runtime."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from build_engines.gpu.options import GpuOptions
from build_engines.gpu.quantization import environment
from build_engines.gpu.quantization.calibration_text import FILE, CalibrationText
from build_engines.gpu.quantization.environment import Environment
from build_engines.gpu.steps import Check, ToolStep
from build_engines.step import Step

PROGRAM = Path(__file__).with_name("quantize_checkpoint.py")


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
