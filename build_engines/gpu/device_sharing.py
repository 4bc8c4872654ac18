"""Whether the models of one models file can share the GPUs that they use. Called by models_file.

Each model takes its `kv_cache.fraction` of the memory that is free when it has loaded its weights,
so the fractions of the models on one GPU may add up to at most one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from build_engines.gpu.options import GpuOptions


def conflicts(models: Mapping[str, GpuOptions]) -> Iterator[tuple[str, str]]:
    """The name of the first model on each GPU that is claimed too often, and the reason.

    An index and a UUID count as two GPUs, because only nvidia-smi can tell that they are the same:
    `doctor --gpu` replaces UUIDs by indices first.
    """
    reported: set[tuple[str, ...]] = set()
    for device in sorted(
        {device for options in models.values() for device in options.node_devices}
    ):
        users = {name: o for name, o in models.items() if device in o.node_devices}
        total = math.fsum(options.kv_cache.fraction for options in users.values())
        if len(users) == 1 or total <= 1 or tuple(users) in reported:
            continue
        reported.add(tuple(users))
        yield next(iter(users)), _reason(device, users, total)


def _reason(device: str, users: Mapping[str, GpuOptions], total: float) -> str:
    shares = ", ".join(
        f"{name} takes {options.kv_cache.fraction:g}"
        + (" (without devices, it uses the first GPUs)" if options.devices is None else "")
        for name, options in users.items()
    )
    return (
        f"the models on GPU {device} claim {total:g} of its memory, more than 1: {shares}. "
        "Name other GPUs in gpu.devices, or lower gpu.kv_cache.fraction"
    )
