"""The command lines of TensorRT-LLM's own tools for engine plans.

Sources: examples/quantization/quantize.py (commit c8c6df08), and as of 1.2
examples/models/core/*/convert_checkpoint.py and tensorrt_llm/commands/build.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from build_engines.gpu.legacy.options import Lookahead
from build_engines.gpu.options import AWQ, GpuOptions
from build_engines.gpu.quantization.calibration_text import as_data_set
from build_engines.gpu.toolkit import Toolkit

# The first on PATH, beside `trtllm-build`: in NVIDIA's container its own, with its packages alone.
PYTHON = "python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter:
    """A folder of examples/models/core that has a convert_checkpoint.py."""

    family: str
    can_pipeline: bool = True


CONVERTERS = {
    "llama": Converter(family="llama"),
    "mistral": Converter(family="llama"),
    "mixtral": Converter(family="llama"),
    "qwen2": Converter(family="qwen"),
    "qwen2_moe": Converter(family="qwen"),
    "qwen3": Converter(family="qwen"),
    "qwen3_moe": Converter(family="qwen"),
    "phi3": Converter(family="phi", can_pipeline=False),
}


def quantize(
    toolkit: Toolkit, options: GpuOptions, weights: Path, texts: Path | None, target: Path
) -> list[str]:
    """Weights -> a quantized TensorRT-LLM checkpoint, a file for each rank.

    Args:
        texts: the folder of a calibration; None if nothing is measured.
    """
    command = [PYTHON, str(toolkit.examples / "quantization" / "quantize.py")]
    command += ["--model_dir", str(weights), "--output_dir", str(target)]
    command += ["--dtype", options.dtype, "--qformat", options.quantization or "full_prec"]
    if texts is not None:
        command += ["--calib_dataset", as_data_set(texts)]
        command += ["--calib_size", str(options.calibration_samples)]
    if options.kv_cache.dtype != "auto":
        command += ["--kv_cache_dtype", options.kv_cache.dtype]
    if options.quantization in AWQ:
        command += ["--awq_block_size", "128"]
    return [*command, *_shards(options)]


def convert(
    toolkit: Toolkit, converter: Converter, options: GpuOptions, weights: Path, target: Path
) -> list[str]:
    """Converts unquantized weights to a TensorRT-LLM checkpoint with one file per rank."""
    folder = toolkit.examples / "models" / "core" / converter.family
    command = [PYTHON, str(folder / "convert_checkpoint.py")]
    command += ["--model_dir", str(weights), "--output_dir", str(target)]
    command += ["--dtype", options.dtype, *_shards(options)]
    if options.expert_parallel > 1:
        tensor = options.tensor_parallel // options.expert_parallel
        command += ["--moe_tp_size", str(tensor), "--moe_ep_size", str(options.expert_parallel)]
    return [*command, "--workers", str(options.plan.workers)]


def build_plan(
    options: GpuOptions, checkpoint: Path, target: Path, *, max_seq_len: int
) -> list[str]:
    """Builds a plan with paged context attention, which chunked prefill and prefix reuse need."""
    command = ["trtllm-build", "--checkpoint_dir", str(checkpoint), "--output_dir", str(target)]
    # The default is in the working directory, where the image's user may not write.
    command += ["--output_timing_cache", str(target / "model.cache")]
    command += ["--max_batch_size", str(options.max_batch_size)]
    command += ["--max_num_tokens", str(options.max_num_tokens)]
    command += ["--max_seq_len", str(max_seq_len)]
    command += ["--kv_cache_type", "paged", "--use_paged_context_fmha", "enable"]
    command += ["--multiple_profiles", "enable", "--workers", str(options.plan.workers)]
    if options.quantization != "fp8" and options.plan.gemm_plugin != "off":
        command += ["--gemm_plugin", "auto"]
    if options.plan.reduce_fusion:
        command += ["--reduce_fusion", "enable"]
    if isinstance(options.speculative, Lookahead):
        command += ["--speculative_decoding_mode", "lookahead_decoding"]
        command += ["--max_draft_len", str(options.speculative.max_draft_len)]
    return command


def adapters(options: GpuOptions, folders: list[Path]) -> list[str]:
    """The flags of a plan that serves LoRA adapters."""
    if options.lora is None:
        return []
    flags = ["--lora_plugin", "auto", "--max_lora_rank", str(options.lora.max_rank)]
    return [*flags, "--lora_dir", *map(str, folders)]


def guide_info(toolkit: Toolkit, weights: Path, target: Path) -> list[str]:
    """Writes the tokenizer's description for guided decoding in the C++ backend."""
    command = [PYTHON, str(toolkit.examples / "generate_xgrammar_tokenizer_info.py")]
    return [*command, "--model_dir", str(weights), "--output_dir", str(target)]


def _shards(options: GpuOptions) -> list[str]:
    tensor, pipeline = str(options.tensor_parallel), str(options.pipeline_parallel)
    return ["--tp_size", tensor, "--pp_size", pipeline]
