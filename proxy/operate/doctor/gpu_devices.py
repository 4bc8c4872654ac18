"""`doctor --gpu`: whether the GPUs that the models name are here, and have room for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from build_engines.errors import BuildError
from build_engines.gpu import device, device_sharing
from build_engines.gpu.device import ListedGpu
from build_engines.gpu.options import GpuOptions
from build_engines.models_file import GpuEntry, ModelsFileError
from proxy.models import policy
from proxy.operate.doctor import checks
from proxy.operate.doctor.checks import Check
from proxy.settings import Settings


def of_models(settings: Settings) -> list[Check]:
    """One check for each model on GPUs; none without a models file."""
    if settings.model_path is not None or not settings.models_file.exists():
        return []
    try:
        entries = policy.models(settings).models
    except ModelsFileError as error:
        return [checks.models("models file", str(error), ok=False)]
    models = {name: entry.gpu for name, entry in entries.items() if isinstance(entry, GpuEntry)}
    if not models:
        return []
    try:
        return of(models, device.listed())
    except BuildError as error:
        return [_check(str(error), ok=False)]


def of(models: Mapping[str, GpuOptions], listed: Sequence[ListedGpu] | None) -> list[Check]:
    """listed: what nvidia-smi reports; None if it is not installed."""
    if listed is None:
        return [_check("nvidia-smi is not on PATH", ok=False)]
    found = {
        name: [(one, _gpu(one, listed)) for one in o.node_devices] for name, o in models.items()
    }
    result = [_of_model(name, gpus, listed) for name, gpus in found.items()]
    resolved = {
        name: models[name].model_copy(update={"devices": _resolved(gpus)})
        for name, gpus in found.items()
    }
    result += [_check(reason, ok=False) for _, reason in device_sharing.conflicts(resolved)]
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
        remedy=f"correct gpu.devices or gpu.tensor_parallel of {name} in models.yaml",
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


def _check(detail: str, *, ok: bool) -> Check:
    remedy = "correct gpu.devices in models.yaml, or run this where the GPUs are"
    return Check(name="GPUs", ok=ok, detail=detail, remedy=remedy)
