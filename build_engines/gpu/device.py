"""The GPUs of this machine as nvidia-smi reports them, and the one that a model is built for."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from build_engines.errors import BuildError
from build_engines.gpu.options import GpuArchitecture, GpuOptions

QUERY = ("--query-gpu=memory.total,compute_cap", "--format=csv,noheader,nounits")
TIMEOUT_S = 30.0
_GPU = re.compile(r"GPU (\d+): (.+) \(UUID: (GPU-[^)]+)\)")
_MIG = re.compile(r"\s+MIG (.+?): \(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Properties of one GPU; None if unknown."""

    memory_gb: float | None = None
    architecture: GpuArchitecture | None = None

    @classmethod
    def of(cls, options: GpuOptions) -> Device:
        """The properties in models.yaml, completed by nvidia-smi.

        Raises:
            BuildError: nvidia-smi was needed and failed.
        """
        if options.memory_gb is not None and options.architecture is not None:
            return cls(memory_gb=options.memory_gb, architecture=options.architecture)
        found = installed(tuple(map(str, options.devices or ())))
        return cls(
            memory_gb=options.memory_gb or found.memory_gb,
            architecture=options.architecture or found.architecture,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGpu:
    """One line of `nvidia-smi -L`. index: of the GPU; a MIG instance has that of its GPU."""

    index: int
    name: str
    uuid: str


def installed(devices: Sequence[str] = ()) -> Device:
    """The properties of the smallest GPU; all unknown without nvidia-smi.

    Args:
        devices: the indices or UUIDs of the GPUs to consider; empty for all.

    Raises:
        BuildError: nvidia-smi failed.
    """
    chosen = [f"--id={','.join(devices)}"] if devices else []
    output = _nvidia_smi(*chosen, *QUERY)
    rows = [line.split(",") for line in (output or "").splitlines() if line.strip()]
    return min((_device(*row) for row in rows), key=_memory, default=Device())


def listed() -> list[ListedGpu] | None:
    """The GPUs and MIG instances of this machine; None without nvidia-smi.

    Raises:
        BuildError: nvidia-smi failed.
    """
    output = _nvidia_smi("-L")
    if output is None:
        return None
    found: list[ListedGpu] = []
    for line in output.splitlines():
        if (gpu := _GPU.match(line)) is not None:
            found.append(ListedGpu(index=int(gpu[1]), name=gpu[2], uuid=gpu[3]))
        elif (mig := _MIG.match(line)) is not None and found:
            found.append(ListedGpu(index=found[-1].index, name=f"MIG {mig[1]}", uuid=mig[2]))
    return found


def cuda_version() -> tuple[int, int] | None:
    """The newest CUDA that the driver here supports, or the forward compatibility package in the
    loader's path; None without a driver.
    """
    found = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(found)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return found.value // 1000, found.value % 1000 // 10


def _nvidia_smi(*arguments: str) -> str | None:
    """Its output; None if it is not installed.

    Raises:
        BuildError: it failed.
    """
    path = shutil.which("nvidia-smi")
    if path is None:
        return None
    try:
        result = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = " ".join((getattr(error, "stdout", None) or "").split())
        raise BuildError(f"nvidia-smi failed: {error} {said}".rstrip()) from error
    return result.stdout


def _memory(device: Device) -> float:
    return device.memory_gb or 0.0


def _device(memory_mib: str, capability: str) -> Device:
    return Device(
        memory_gb=int(memory_mib) * 2**20 / 1e9, architecture=architecture(capability.strip())
    )


def architecture(capability: str) -> GpuArchitecture:
    """The architecture with a compute capability such as `9.0`.

    Raises:
        BuildError: it is older than Ampere, which TensorRT-LLM does not support.
    """
    major, _, minor = capability.partition(".")
    if int(major) >= 10:
        return "blackwell"
    if int(major) == 9:
        return "hopper"
    if int(major) == 8:
        return "ada" if minor == "9" else "ampere"
    raise BuildError(f"compute capability {capability}: TensorRT-LLM needs 8.0 (Ampere) or later")
