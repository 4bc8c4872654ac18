"""Reads a LoRA adapter's folder in PEFT's format, and refuses what TensorRT-LLM cannot serve.

TensorRT-LLM reads an adapter with the first request for it. A tensor that it cannot place ends its
executor, and it silently ignores settings that it does not know. So both are refused here.
Source: its lora_manager.py, around 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from build_engines.errors import BuildError, in_words
from build_engines.gpu.options import GpuOptions
from build_engines.json_files import read_object

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# The modules of a decoder layer: Hugging Face's names -> TensorRT-LLM's. Experts have none there.
MODULES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "qkv_proj": "attn_qkv",
    "o_proj": "attn_dense",
    "gate_proj": "mlp_h_to_4h",
    "down_proj": "mlp_4h_to_h",
    "up_proj": "mlp_gate",
    "gate_up_proj": "mlp_gate_up",
}
_TOGETHER = frozenset({"q_proj", "k_proj", "v_proj"})  # TensorRT-LLM enables all three or none
_FUSED = frozenset({"qkv_proj", "gate_up_proj"})
FUSED_IS_SPLIT_SINCE = Version("1.2.0")  # its pull request 8063
_TENSOR = re.compile(r".+\.layers\.\d+\.(?:self_attn|mlp)\.(\w+)\.lora_[AB]\.weight")
_NOT_SERVED = {
    "modules_to_save": "that replace whole modules",
    "use_dora": "with magnitudes (DoRA)",
    "alpha_pattern": "with a different alpha for some modules",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """modules: Hugging Face's names of the modules that it changes."""

    folder: Path
    rank: int
    modules: frozenset[str]

    @classmethod
    def read(cls, folder: Path) -> Adapter:
        """Reads the configuration and the names of the tensors.

        Raises:
            BuildError: it is not a PEFT adapter, or TensorRT-LLM cannot serve it.
        """
        config = read_object(folder / CONFIG)
        if kind := next(_not_served(config), None):
            raise BuildError(f"{folder / CONFIG}: TensorRT-LLM cannot serve adapters {kind}")
        try:
            ranks = [config["r"], *(config.get("rank_pattern") or {}).values()]
            rank = max(int(found) for found in ranks)
        except (KeyError, TypeError, ValueError) as error:
            reason = in_words(error)
            raise BuildError(f"{folder / CONFIG} does not state the rank: {reason}") from error
        return cls(folder=folder, rank=rank, modules=_modules(folder / WEIGHTS))


def modules(folders: Sequence[Path]) -> dict[str, str]:
    """TensorRT-LLM's names of the modules that these adapters change -> Hugging Face's names.

    Raises:
        BuildError: as for Adapter.read.
    """
    changed = frozenset[str]().union(*(Adapter.read(folder).modules for folder in folders))
    if changed & _TOGETHER:
        changed |= _TOGETHER
    return {MODULES[name]: name for name in sorted(changed)}


def check(folders: Sequence[Path], options: GpuOptions, version: Version) -> None:
    """Checks the adapters of a model with `options.lora` for this version of TensorRT-LLM.

    Raises:
        BuildError: as for Adapter.read; or an adapter does not fit the options.
    """
    found = [Adapter.read(folder) for folder in folders]
    if problems := [each for adapter in found for each in _problems(adapter, options, version)]:
        raise BuildError("; ".join(problems))
    for adapter in found:
        more = adapter.modules - found[0].modules
        if options.engine == "plan" and more:
            raise BuildError(
                f"{adapter.folder} changes {', '.join(sorted(more))}, and {found[0].folder} does "
                "not: trtllm-build uses the modules of the first adapter for all. Name this one "
                "first, or use engine: pytorch"
            )


def _problems(adapter: Adapter, options: GpuOptions, version: Version) -> Iterator[str]:
    if options.lora is not None and adapter.rank > options.lora.max_rank:
        limit = options.lora.max_rank
        yield f"{adapter.folder} has rank {adapter.rank}: lora.max_rank is {limit}, raise it"
    fused = sorted(adapter.modules & _FUSED)
    if fused and options.tensor_parallel > 1 and version < FUSED_IS_SPLIT_SINCE:
        yield (
            f"{adapter.folder} changes {', '.join(fused)}, and TensorRT-LLM {version} splits these "
            f"wrongly over GPUs: use {FUSED_IS_SPLIT_SINCE} or later, or tensor_parallel: 1"
        )


def _not_served(config: dict[str, Any]) -> Iterator[str]:
    if (kind := config.get("peft_type")) != "LORA":
        yield f"of peft_type {kind!r}, only of LORA"
    if (bias := config.get("bias", "none")) != "none":
        yield f"with biases: bias is {bias!r}"
    yield from (f"{what}: {name}" for name, what in _NOT_SERVED.items() if config.get(name))


def _modules(weights: Path) -> frozenset[str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="np") as opened:
            names = list(opened.keys())
    except (OSError, SafetensorError) as error:
        raise BuildError(f"{weights} cannot be read: {error}") from error
    found = {name: _TENSOR.fullmatch(name) for name in names}
    strange = [name for name, match in found.items() if match is None or match[1] not in MODULES]
    if strange or not names:
        raise BuildError(
            f"{weights} has {strange[0] if strange else 'no tensor'}: TensorRT-LLM's adapters can "
            f"change only {', '.join(MODULES)} in a decoder's layers"
        )
    return frozenset(match[1] for match in found.values() if match is not None)
