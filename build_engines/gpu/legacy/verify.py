"""Checks that upstream's tools wrote a complete plan with the requested options; needs no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packaging.version import Version

from build_engines.errors import BuildError
from build_engines.gpu.legacy.options import Lookahead
from build_engines.gpu.options import GpuOptions
from build_engines.gpu.verify import present
from build_engines.json_files import read_object

CACHE_BLOCK = 32  # tokens; trtllm-build's default tokens_per_block
# TensorRT-LLM's names. int8_sq has several, which depend on more than models.yaml.
ALGORITHMS = {
    "fp8": "FP8",
    "nvfp4": "NVFP4",
    "int4_awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
    "int8_wo": "W8A16",
    "int4_wo": "W4A16",
}


def shards(folder: Path, options: GpuOptions) -> None:
    """Checks a TensorRT-LLM checkpoint: a configuration, and one file per rank."""
    present(folder, "config.json", *(f"rank{r}.safetensors" for r in range(options.world_size)))
    config = read_object(folder / "config.json")
    _mapping(folder, config, options)
    _quantization(folder, config.get("quantization", {}), options)


def plan(folder: Path, options: GpuOptions, *, version: Version, max_seq_len: int) -> None:
    """Checks an engine plan: one file per rank, built by this version for these lengths."""
    present(folder, "config.json", *(f"rank{rank}.engine" for rank in range(options.world_size)))
    config = read_object(folder / "config.json")
    if Version(str(config.get("version", "0"))) != version:
        raise BuildError(
            f"{folder} was built by TensorRT-LLM {config.get('version')}, not {version}"
        )
    _mapping(folder, config.get("pretrained_config", {}), options)
    built = config.get("build_config", {})
    for name, value in _lengths(options, max_seq_len).items():
        if built.get(name) != value:
            raise BuildError(f"{folder} was built with {name} {built.get(name)}, not {value}")


def _lengths(options: GpuOptions, max_seq_len: int) -> dict[str, int]:
    """The lengths that trtllm-build writes for these options, see its builder.py."""
    tokens = max(min(options.max_num_tokens, max_seq_len * options.max_batch_size), CACHE_BLOCK)
    drafts = 0
    if isinstance(options.speculative, Lookahead):
        drafts = options.speculative.max_draft_len
        tokens = max(tokens, options.max_batch_size * (drafts + 1))
    return {
        "max_seq_len": max_seq_len + drafts,
        "max_batch_size": options.max_batch_size,
        "max_num_tokens": tokens,
    }


def guide_info(folder: Path) -> None:
    present(folder, "xgrammar_tokenizer_info.json")


def _mapping(folder: Path, config: dict[str, Any], options: GpuOptions) -> None:
    found = config.get("mapping", {})
    wanted = {"tp_size": options.tensor_parallel, "pp_size": options.pipeline_parallel}
    for name, value in wanted.items():
        if found.get(name) != value:
            raise BuildError(f"{folder} was made for {name} {found.get(name)}, not {value}")


def _quantization(folder: Path, found: dict[str, Any], options: GpuOptions) -> None:
    wanted = ALGORITHMS.get(options.quantization or "")
    if wanted is not None and found.get("quant_algo") != wanted:
        raise BuildError(f"{folder} is quantized as {found.get('quant_algo')}, not as {wanted}")
