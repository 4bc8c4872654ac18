"""The GPU that a model is built for: what models.yaml says of it, else what nvidia-smi says."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from triton_openai.build_engines.errors import BuildError
from triton_openai.build_engines.gpu.options import GpuArchitecture, GpuOptions

QUERY = ("--query-gpu=memory.total,compute_cap", "--format=csv,noheader,nounits")
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Of one GPU; None where nobody says."""

    memory_gb: float | None = None
    architecture: GpuArchitecture | None = None

    @classmethod
    def of(cls, options: GpuOptions) -> Device:
        """
        Raises:
            BuildError: nvidia-smi was asked and failed.
        """
        if options.memory_gb is not None and options.architecture is not None:
            return cls(memory_gb=options.memory_gb, architecture=options.architecture)
        found = installed()
        return cls(
            memory_gb=options.memory_gb or found.memory_gb,
            architecture=options.architecture or found.architecture,
        )


def installed() -> Device:
    """The smallest of this machine's GPUs; nothing is known where there is no nvidia-smi.

    Raises:
        BuildError: nvidia-smi failed.
    """
    path = shutil.which("nvidia-smi")
    if path is None:
        return Device()
    try:
        result = subprocess.run(
            [path, *QUERY], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"nvidia-smi failed: {error}") from error
    rows = [line.split(",") for line in result.stdout.splitlines() if line.strip()]
    return min((_device(*row) for row in rows), key=_memory, default=Device())


def _memory(device: Device) -> float:
    return device.memory_gb or 0.0


def _device(memory_mib: str, capability: str) -> Device:
    return Device(
        memory_gb=int(memory_mib) * 2**20 / 1e9, architecture=architecture(capability.strip())
    )


def architecture(capability: str) -> GpuArchitecture:
    """Of a compute capability such as `9.0`.

    Raises:
        BuildError: it is older than Ampere, which TensorRT-LLM no longer runs on.
    """
    major, _, minor = capability.partition(".")
    if int(major) >= 10:
        return "blackwell"
    if int(major) == 9:
        return "hopper"
    if int(major) == 8:
        return "ada" if minor == "9" else "ampere"
    raise BuildError(f"compute capability {capability}: TensorRT-LLM needs 8.0 (Ampere) or later")
