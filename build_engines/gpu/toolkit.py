"""The installed TensorRT-LLM, and what its version supports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.version import InvalidVersion, Version

from build_engines.engine_limits import TORCH_SAMPLER_IS_WHOLE
from build_engines.errors import BuildError
from build_engines.gpu.options import GpuOptions

OLDEST = Version("0.20.0")  # the first with its examples in models/core
PYTORCH_SINCE = Version("1.0.0")
# Its candidates until then were not looked at, but for speculation's names, which change there.
CANDIDATES_OF_1_3 = (Version("1.3.0a0"), TORCH_SAMPLER_IS_WHOLE)
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
        first, fixed = CANDIDATES_OF_1_3
        if self.version < OLDEST:
            yield f"TensorRT-LLM {self.version} is too old: use {OLDEST} or later"
        elif options.engine == "pytorch" and self.version < PYTORCH_SINCE:
            yield (
                f"TensorRT-LLM {self.version} has no stable PyTorch runtime: use engine: plan, or "
                f"{PYTORCH_SINCE} or later"
            )
        elif options.speculative is not None and first <= self.version < fixed:
            yield (
                f"TensorRT-LLM {self.version} has other names for speculative decoding than 1.2 "
                f"and {fixed}, which are known here: leave out speculative"
            )
        elif options.sampler == "trtllm" and self.version >= fixed:
            yield f"TensorRT-LLM {self.version} has one sampler only: leave out sampler"


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
