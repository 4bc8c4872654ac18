"""`doctor --gpu`: whether this TensorRT-LLM, and the GPUs here, are what the models need."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from build_engines.upstream import backend_config
from build_engines.upstream.signatures import Found, Signatures
from proxy.operate.doctor import gpu_devices
from proxy.operate.doctor.checks import Check
from proxy.settings import Settings

CONTAINER = "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"


def everything(settings: Settings) -> list[Check]:
    """Imports TensorRT-LLM if it is installed, which takes some seconds."""
    known = Signatures.read()
    version = _version()
    found = known.found() if version is not None else {}
    text = backend_config.ALL_MODELS.read_text() if backend_config.ALL_MODELS.exists() else None
    return [
        package(version, known.version),
        *(signatures(known, found) if version is not None else ()),
        cpp_backend(text, backend_config.ALL_MODELS),
        *gpu_devices.of_models(settings),
    ]


def package(version: str | None, known: str) -> Check:
    return Check(
        name="TensorRT-LLM",
        ok=version is not None,
        detail=f"tensorrt_llm {version} (known: {known})"
        if version
        else "tensorrt_llm is not installed",
        remedy=f"run this in NVIDIA's container {CONTAINER}",
    )


def signatures(known: Signatures, found: Found) -> list[Check]:
    """One check for each callable or class that the engine uses."""
    by_target: dict[str, list[str]] = {target: [] for target in known.used}
    broken = set()
    for difference in known.differences(found):
        by_target[difference.target].append(difference.text)
        if difference.breaks:
            broken.add(difference.target)
    return [
        Check(
            name=target.replace(":", "."),
            ok=target not in broken,
            detail="; ".join(texts) or f"as in {known.version}",
            remedy=f"the engine does not run on this version: use {CONTAINER}",
        )
        for target, texts in by_target.items()
    ]


def cpp_backend(text: str | None, path: Path) -> Check:
    """text: the config.pbtxt at `path` in the image; None if it has none."""
    name = "C++ backend"
    if text is None:
        detail = f"not here ({path}): only `runtime: tensorrtllm` needs it"
        return Check(name=name, ok=True, detail=detail)
    found = list(backend_config.differences(backend_config.parsed(text)))
    return Check(
        name=name,
        ok=not any(difference.breaks for difference in found),
        detail="; ".join(difference.text for difference in found)
        or f"its tensors and parameters are the expected ones ({path})",
        remedy="compare with model_repository/tensorrt_llm/config.pbtxt before serving with it",
    )


def _version() -> str | None:
    try:
        return metadata.version("tensorrt_llm")
    except metadata.PackageNotFoundError:
        return None
