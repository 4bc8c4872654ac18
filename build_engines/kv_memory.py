"""The memory of the KV cache on a CPU, and the context length that fits into it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from build_engines.errors import BuildError
from build_engines.facts import Facts
from build_engines.models_file import OnnxEntry

SHARE_OF_MEMORY = 0.4  # the rest is for weights, Triton and the system
LEAST_CONTEXT = 256  # tokens
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def kv_bytes(entry: OnnxEntry, *, models: int) -> int:
    """The size that models.yaml sets, else this model's share of the machine's memory."""
    if entry.onnx.kv_cache_mb is not None:
        return entry.onnx.kv_cache_mb * 1_000_000
    return int(SHARE_OF_MEMORY * memory_bytes() / models)


def memory_bytes() -> int:
    """The memory of this container, or of the machine where it has no limit."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if CGROUP_LIMIT.is_file() and (limit := CGROUP_LIMIT.read_text().strip()).isdigit():
        memory = min(memory, int(limit))
    return memory


def fitted(facts: Facts, kv_bytes: int) -> Facts:
    """The facts, with the context length cut to what one request can use of `kv_bytes`.

    Raises:
        BuildError: too little context would be left.
    """
    room = kv_bytes // facts.kv_token_bytes
    if room >= facts.context_length:
        return facts
    if room < LEAST_CONTEXT:
        raise BuildError(
            f"{kv_bytes} bytes of KV cache hold {room} tokens, {facts.kv_token_bytes} bytes each: "
            "raise onnx.kv_cache_mb in models.yaml"
        )
    return replace(facts, context_length=room)
