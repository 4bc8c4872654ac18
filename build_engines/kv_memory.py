"""How much memory keys and values take: one token's, and what a machine gives them all."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path

from build_engines.errors import BuildError
from build_engines.facts import Facts

logger = logging.getLogger(__name__)

SHARE_OF_MEMORY = 0.4  # the rest is for weights, Triton and the system
LEAST_CONTEXT = 256  # tokens
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def token_bytes(engine: Path) -> int:
    """Bytes of one token's keys and values in an ONNX folder's cache, all layers together."""
    import onnx

    decoder = json.loads((engine / "genai_config.json").read_text())["model"]["decoder"]
    graph = onnx.load(str(engine / decoder["filename"]), load_external_data=False).graph
    first = decoder["inputs"]["past_key_names"] % 0
    kinds = {node.name: node.type.tensor_type.elem_type for node in graph.input}
    if first not in kinds:
        raise BuildError(f"{engine}: the graph has no input {first}")
    element = onnx.helper.tensor_dtype_to_np_dtype(kinds[first]).itemsize
    sides = 2 * decoder["num_hidden_layers"]
    return int(sides * decoder["num_key_value_heads"] * decoder["head_size"] * element)


def default_bytes(share: float) -> int:
    """One model's part of this machine's memory, a container's limit considered."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if CGROUP_LIMIT.is_file() and (limit := CGROUP_LIMIT.read_text().strip()).isdigit():
        memory = min(memory, int(limit))
    return int(SHARE_OF_MEMORY * share * memory)


def fitted(facts: Facts, kv_bytes: int) -> Facts:
    """The facts, with a context length that one request can have within so many bytes.

    Raises:
        BuildError: hardly any context would be left.
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
