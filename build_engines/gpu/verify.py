"""Checks that upstream's tools wrote complete files with the requested options; needs no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from packaging.version import Version

from build_engines.errors import BuildError
from build_engines.gpu.options import GpuOptions, Lookahead
from build_engines.gpu.quantization import checkpoint as quantized_checkpoint
from build_engines.json_files import read_object

INDEX = "model.safetensors.index.json"
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


def weights(folder: Path) -> None:
    """Checks that a Hugging Face folder has its configuration and all files of its weights.

    Raises:
        BuildError: a file is missing. The other checks raise it, too.
    """
    _present(folder, "config.json")
    if (folder / INDEX).is_file():
        files = set(read_object(folder / INDEX).get("weight_map", {}).values())
        _present(folder, *sorted(files))
    elif not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise BuildError(f"{folder} has no weights: neither *.safetensors nor *.bin")


def checkpoint(folder: Path, source: Path, options: GpuOptions) -> None:
    """Checks a quantized Hugging Face folder. source: the weights that were quantized."""
    weights(folder)
    _present(folder, "hf_quant_config.json")
    quantized_checkpoint.check(folder, source, options)


def shards(folder: Path, options: GpuOptions) -> None:
    """Checks a TensorRT-LLM checkpoint: a configuration, and one file per rank."""
    _present(folder, "config.json", *(f"rank{r}.safetensors" for r in range(options.world_size)))
    config = read_object(folder / "config.json")
    _mapping(folder, config, options)
    _quantization(folder, config.get("quantization", {}), options)


def plan(folder: Path, options: GpuOptions, *, version: Version, max_seq_len: int) -> None:
    """Checks an engine plan: one file per rank, built by this version for these lengths."""
    _present(folder, "config.json", *(f"rank{rank}.engine" for rank in range(options.world_size)))
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
    _present(folder, "xgrammar_tokenizer_info.json")


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


def _present(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        if not path.is_file() or path.stat().st_size == 0:
            raise BuildError(f"{path} is {'empty' if path.exists() else 'missing'}")
