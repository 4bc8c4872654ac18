"""The Triton config parameters of NVIDIA's C++ backend, `tensorrtllm`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from build_engines.gpu.legacy.options import Lookahead
from build_engines.gpu.llm_args import BYTES
from build_engines.gpu.options import GpuOptions


def of(options: GpuOptions, engine: Path, folders: Mapping[str, Path]) -> dict[str, str]:
    """The parameters as models.yaml decides.

    The names are those of all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt around 1.2.

    Args:
        engine: the plan's absolute folder, because the backend runs in Triton's working directory.
        folders: `weights`, and `guide_info` if guided decoding is on.
    """
    kv_cache = options.kv_cache
    return {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": str(engine),
        "batch_scheduler_policy": options.scheduler,
        "kv_cache_free_gpu_mem_fraction": str(kv_cache.fraction),
        "kv_cache_host_memory_bytes": str(int(kv_cache.host_offload_gb * BYTES)),
        "enable_kv_cache_reuse": str(kv_cache.reuse).lower(),
        "enable_chunked_context": str(options.chunked_prefill).lower(),
        "exclude_input_in_output": "true",
        "max_beam_width": "1",
        "gpu_device_ids": ",".join(map(str, options.devices or ())),
        **_decoding(options),
        **_guides(options, folders),
    }


def _decoding(options: GpuOptions) -> dict[str, str]:
    chosen = options.speculative
    if not isinstance(chosen, Lookahead):
        return {"decoding_mode": "top_k_top_p"}
    return {
        "decoding_mode": "lookahead",
        "lookahead_window_size": str(chosen.window),
        "lookahead_ngram_size": str(chosen.ngram),
        "lookahead_verification_set_size": str(chosen.verification),
    }


def _guides(options: GpuOptions, folders: Mapping[str, Path]) -> dict[str, str]:
    """The backend needs all three keys, and silently switches guides off if two are empty."""
    found = {"tokenizer_dir": str(folders["weights"])}
    if options.guided_decoding == "off":
        return {**found, "guided_decoding_backend": "", "xgrammar_tokenizer_info_path": ""}
    info = folders["guide_info"] / "xgrammar_tokenizer_info.json"
    return {
        **found,
        "guided_decoding_backend": "xgrammar",
        "xgrammar_tokenizer_info_path": str(info),
    }
