"""The installed TensorRT-LLM, and what its version supports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.version import InvalidVersion, Version

from build_engines.errors import BuildError
from build_engines.gpu.options import GpuOptions

OLDEST = Version("0.20.0")  # the first with its examples in models/core
PYTORCH_SINCE = Version("1.0.0")
SPECULATION_BEFORE = Version("1.3.0a0")
CONTAINER = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
# The examples' folder in NVIDIA's Triton container, and in its TensorRT-LLM container.
EXAMPLES = (Path("/app/examples"), Path("/app/tensorrt_llm/examples"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """examples: upstream's folder of that name, with the tools for engine plans."""

    version: Version
    examples: Path

    def problems(self, options: GpuOptions) -> Iterator[str]:
        """The options that this version does not support, one line each."""
        if self.version < OLDEST:
            yield f"TensorRT-LLM {self.version} is too old: use {OLDEST} or later"
        elif options.engine == "pytorch" and self.version < PYTORCH_SINCE:
            yield (
                f"TensorRT-LLM {self.version} has no stable PyTorch runtime: use engine: plan, or "
                f"{PYTORCH_SINCE} or later"
            )
        elif options.speculative is not None and self.version >= SPECULATION_BEFORE:
            yield (
                f"TensorRT-LLM {self.version} configures speculative decoding differently from 1.0 "
                "to 1.2, which are supported here: leave out speculative"
            )


def installed() -> Toolkit:
    """
    Raises:
        BuildError: TensorRT-LLM is not installed in this environment.
    """
    try:
        return planned_for(metadata.version("tensorrt_llm"))
    except metadata.PackageNotFoundError:
        raise BuildError(
            f"TensorRT-LLM is not installed here: run this in {CONTAINER}, or print the commands "
            "with build --dry-run --tensorrt-llm 1.2.1"
        ) from None


def planned_for(version: str) -> Toolkit:
    """The toolkit of that version, installed or not.

    Raises:
        BuildError: the text is not a version.
    """
    found = next((folder for folder in EXAMPLES if folder.is_dir()), EXAMPLES[0])
    try:
        return Toolkit(version=Version(version), examples=found)
    except InvalidVersion:
        raise BuildError(f"{version!r} is not a version of TensorRT-LLM, such as 1.2.1") from None
