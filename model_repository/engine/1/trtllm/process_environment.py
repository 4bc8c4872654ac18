"""The environment variables that CUDA and TensorRT-LLM read when they are imported."""

from __future__ import annotations

from collections.abc import Mapping


def variables(parameters: Mapping[str, str]) -> dict[str, str]:
    """What the engine's Triton config parameters demand.

    devices: indices as nvidia-smi counts them, or UUIDs; empty for all GPUs. CUDA's own order of
    GPUs differs from nvidia-smi's unless CUDA_DEVICE_ORDER is set. MPI workers that this process
    spawns inherit these variables (seen with Open MPI 4.1.8).
    """
    found: dict[str, str] = {}
    if parameters["devices"]:
        found["CUDA_VISIBLE_DEVICES"] = parameters["devices"]
        found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if parameters["single_process"] == "true":
        found["TLLM_WORKER_USE_SINGLE_PROCESS"] = "1"
    return found
