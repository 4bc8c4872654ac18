"""`doctor --gpu`: whether TensorRT-LLM or vLLM, and the GPUs here, are what the models need."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile, gettempdir

from packaging.version import Version

from build_engines.errors import BuildError
from build_engines.gpu import device, refusals
from build_engines.gpu.device import ListedGpu
from build_engines.gpu.legacy import backend_config
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.toolkit import CONTAINER
from build_engines.models_file import GpuEntry, ModelsFileError, VllmEntry
from build_engines.upstream.signatures import VERSIONS, Found, Signatures, record_of
from build_engines.vllm import arguments
from proxy.models import policy
from proxy.operate.doctor import checks
from proxy.operate.doctor.checks import Check
from proxy.settings import Settings

# Of 26.04 to 26.07: docs/introduction/compatibility.md of triton-inference-server/server at r26.07
# (819ee37770df2fcd6d799d2a5d1dacf812f7d62c).
CUDA, DRIVER = (13, 1), "590.44.01"
VLLM_CUDA, VLLM_DRIVER = (13, 4), "615.61"  # of 26.08 with vLLM: the same file at r26.08 (6fa22ae0)


def everything(settings: Settings) -> list[Check]:
    """Imports TensorRT-LLM if it is installed, which takes some seconds."""
    version, vllm = checks.version("tensorrt_llm"), arguments.installed()
    if version is None and vllm is not None:
        found = driver(device.cuda_version(), "26.08", VLLM_CUDA, VLLM_DRIVER)
        return [vllm_package(vllm), found, *compilers(), *caches(os.environ), *of_models(settings)]
    text = backend_config.ALL_MODELS.read_text() if backend_config.ALL_MODELS.exists() else None
    return [
        package(version),
        driver(device.cuda_version()),
        *compilers(),
        *caches(os.environ),
        *(() if version is None else installed_signatures(version)),
        cpp_backend(text, backend_config.ALL_MODELS),
        *of_models(settings),
    ]


def package(version: str | None) -> Check:
    return Check(
        name="TensorRT-LLM",
        ok=version is not None,
        detail=f"tensorrt_llm {version} (known: {', '.join(VERSIONS.values())})"
        if version
        else "tensorrt_llm is not installed",
        remedy=f"run this in NVIDIA's container {CONTAINER}",
    )


def vllm_package(version: Version) -> Check:
    known = ", ".join(str(first) for first in sorted(arguments.RECORDS))
    return Check(
        name="vLLM",
        ok=version >= arguments.OLDEST,
        detail=f"vLLM {version} (recorded: {known}; later versions are held to the last of these)",
        remedy=f"run this in NVIDIA's container {arguments.CONTAINER}",
    )


def installed_signatures(version: str) -> list[Check]:
    """Against the record that holds for the installed version."""
    known = Signatures.read(record_of(Version(version)))
    return signatures(known, known.found())


def driver(
    cuda: tuple[int, int] | None,
    container: str = "26.07",
    wanted: tuple[int, int] = CUDA,
    made_for: str = DRIVER,
) -> Check:
    """cuda: the newest that the driver supports, if there is one."""
    has = f"{wanted[0]}.{wanted[1]}"
    needs = f"NVIDIA's container {container} has {has} and was made for driver {made_for}"
    if cuda is not None and cuda[0] == wanted[0] and cuda < wanted:
        needs += (
            f". CUDA {wanted[0]} runs on any {wanted[0]}.x driver, but for what is compiled to PTX "
            "at run time: if a kernel is refused with `unsupported toolchain`, update the driver"
        )
    return Check(
        name="CUDA",
        ok=cuda is not None and cuda[0] >= wanted[0],
        detail=f"no NVIDIA driver here (libcuda.so.1); {needs}"
        if cuda is None
        else f"the driver supports CUDA {cuda[0]}.{cuda[1]}; {needs}",
        remedy="give the container its GPUs, as --gpus all does with the NVIDIA Container Toolkit"
        if cuda is None
        else f"install NVIDIA's driver {made_for} or later on the host; on a data center GPU, the "
        "container's forward compatibility package may do instead: its entry point says so",
    )


# What FlashInfer, Triton's compiler and torch run when a kernel is first used.
TOOLS = {"nvcc": ("nvcc",), "ninja": ("ninja",), "C++ compiler": ("c++", "g++", "clang++")}
# The variable that moves a cache, and where it is otherwise, below the home.
CACHES = {
    "FLASHINFER_WORKSPACE_BASE": "",
    "TRITON_CACHE_DIR": ".triton/cache",
    "TORCHINDUCTOR_CACHE_DIR": "",
    "VLLM_CACHE_ROOT": ".cache/vllm",
}


def compilers() -> list[Check]:
    homes = (os.environ.get("CUDA_HOME"), "/usr/local/cuda")
    path = os.pathsep.join([os.environ.get("PATH", ""), *(f"{home}/bin" for home in homes if home)])
    found = {
        name: next(filter(None, (shutil.which(each, path=path) for each in programs)), None)
        for name, programs in TOOLS.items()
    }
    return [
        Check(
            name=name,
            ok=place is not None,
            detail=place or "not on PATH: some kernels are compiled when they are first used",
            remedy=f"install {name} in the image (apt-get install {PACKAGES[name]}), or the first "
            "request that needs such a kernel fails",
        )
        for name, place in found.items()
    ]


PACKAGES = {"nvcc": "cuda-nvcc-13-1", "ninja": "ninja-build", "C++ compiler": "g++"}


def caches(environ: Mapping[str, str]) -> list[Check]:
    """The folders in which compiled kernels are kept: each is written to, and run from."""
    home = environ.get("HOME", "/")
    places = {
        Path(environ.get(name) or os.path.join(home, below)) for name, below in CACHES.items()
    }
    return [_cache(place) for place in sorted({*places, Path(gettempdir())})]


def _cache(place: Path) -> Check:
    made = next(each for each in (place, *place.parents) if each.exists())
    script = None
    try:
        with NamedTemporaryFile("w", dir=made, delete=False) as file:
            script = Path(file.name)
            file.write("#!/bin/sh\n")
        script.chmod(0o700)
        subprocess.run([script], check=True, timeout=device.TIMEOUT_S)
        problem = None
    except (OSError, subprocess.SubprocessError) as error:
        problem = error
    finally:
        if script is not None:
            script.unlink()
    return Check(
        name="kernel cache",
        ok=problem is None,
        detail=f"{place}: {problem or 'can be written to and run from'}",
        remedy=f"mount {made} writable for this user and with `exec`, or set "
        f"{', '.join(CACHES)} to folders that are",
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


def of_models(settings: Settings) -> list[Check]:
    """One check for each model on GPUs; none without a models file."""
    if settings.model_path is not None or not settings.models_file.exists():
        return []
    try:
        entries = policy.models(settings).models
    except ModelsFileError as error:
        return [checks.models("models file", str(error), ok=False)]
    models = {
        name: entry.vllm.as_gpu() if isinstance(entry, VllmEntry) else entry.gpu
        for name, entry in entries.items()
        if isinstance(entry, GpuEntry | VllmEntry)
    }
    if not models:
        return []
    try:
        return devices(models, device.listed())
    except BuildError as error:
        return [_devices(str(error), ok=False)]


def devices(models: Mapping[str, GpuOptions], listed: Sequence[ListedGpu] | None) -> list[Check]:
    """listed: what nvidia-smi reports; None if it is not installed."""
    if listed is None:
        return [_devices("nvidia-smi is not on PATH", ok=False)]
    found = {
        name: [(one, _gpu(one, listed)) for one in o.node_devices] for name, o in models.items()
    }
    result = [_of_model(name, gpus, listed) for name, gpus in found.items()]
    resolved = {
        name: models[name].model_copy(update={"devices": _resolved(gpus)})
        for name, gpus in found.items()
    }
    result += [_devices(reason, ok=False) for _, reason in refusals.sharing_conflicts(resolved)]
    return result


def _of_model(
    name: str, gpus: Sequence[tuple[str, ListedGpu | None]], listed: Sequence[ListedGpu]
) -> Check:
    missing = [wanted for wanted, found in gpus if found is None]
    here = ", ".join(f"{one.index} ({one.name})" for one in listed) or "none"
    used = ", ".join(f"{wanted} ({found.name})" for wanted, found in gpus if found is not None)
    return Check(
        name=f"GPUs of {name}",
        ok=not missing,
        detail=f"GPU {', '.join(missing)} is not here; nvidia-smi lists {here}"
        if missing
        else used,
        remedy=f"correct devices or tensor_parallel of {name} in models.yaml",
    )


def _gpu(wanted: str, listed: Sequence[ListedGpu]) -> ListedGpu | None:
    """By index, or by UUID; CUDA accepts the beginning of a UUID if it is unique."""
    if wanted.isdigit():
        is_meant = [gpu for gpu in listed if gpu.uuid.startswith("GPU-")]
        return next((gpu for gpu in is_meant if gpu.index == int(wanted)), None)
    matching = [gpu for gpu in listed if gpu.uuid.lower().startswith(wanted.lower())]
    return matching[0] if len(matching) == 1 else None


def _resolved(gpus: Sequence[tuple[str, ListedGpu | None]]) -> tuple[int | str, ...]:
    """Indices, so that two names of one GPU are recognized. MIG instances keep their UUIDs."""
    return tuple(
        wanted if found is None or found.uuid.startswith("MIG-") else found.index
        for wanted, found in gpus
    )


def _devices(detail: str, *, ok: bool) -> Check:
    remedy = "correct gpu.devices in models.yaml, or run this where the GPUs are"
    return Check(name="GPUs", ok=ok, detail=detail, remedy=remedy)
