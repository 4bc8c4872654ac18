"""The keyword arguments of TensorRT-LLM's `LLM`, as its engine's Triton parameter `llm_args`.

The names are those of llmapi/llm_args.py from 1.0 to 1.2. The engine adds `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from build_engines.engine_limits import Sampler
from build_engines.gpu.options import (
    DraftTarget,
    Eagle3,
    GpuOptions,
    Lookahead,
    Lora,
    Mtp,
    NGram,
    Speculation,
)

BYTES = 10**9
SAMPLERS: dict[str, Sampler] = {"trtllm": "TRTLLMSampler", "torch": "TorchSampler"}
SAMPLER_HAS_TYPE_SINCE = Version("1.1.0")
# Before that, CUDA graphs change the answers of adapters (its pull requests 5480 and 8279).
LORA_HAS_GRAPHS_SINCE = Version("1.3.0")
# By default its queue ignores priorities (pull request 12362, and WaitingQueuePolicy in llm_args.py
# at 0004396). It is not known which release candidate of 1.3 had them first.
QUEUE_HAS_PRIORITIES_SINCE = Version("1.3.0")
LORA = "lora/"  # prefix of an adapter's name among the folders beside an engine
PLAN_LIMITS = ("max_batch_size", "max_num_tokens")


def of(
    options: GpuOptions,
    folders: Mapping[str, Path],
    *,
    version: Version,
    lora_modules: Mapping[str, str],
    plan: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """
    Args:
        folders: `weights`, which has the tokenizer that guides need; `draft` if there is one.
        lora_modules: the modules that the adapters change, see gpu.adapter.
        plan: the build_config of an engine plan.
    """
    found: dict[str, Any] = {
        "tokenizer": str(folders["weights"]),
        "tensor_parallel_size": options.tensor_parallel,
        "pipeline_parallel_size": options.pipeline_parallel,
        "gpus_per_node": options.gpus_per_node,
        "kv_cache_config": _kv_cache(options),
        "enable_chunked_prefill": options.chunked_prefill,
        "scheduler_config": {"capacity_scheduler_policy": options.scheduler.upper()},
    }
    if options.guided_decoding != "off":
        found["guided_decoding_backend"] = options.guided_decoding
    if options.speculative is not None:
        found["speculative_config"] = _speculation(options.speculative, folders)
    if options.engine == "pytorch":
        found["scheduler_config"] |= _queue(version)
        return found | _pytorch(options, version, lora_modules)
    # BaseLlmArgs' defaults would replace the plan's own limits
    return found | {name: plan[name] for name in PLAN_LIMITS if plan is not None}


def _pytorch(
    options: GpuOptions, version: Version, lora_modules: Mapping[str, str]
) -> dict[str, Any]:
    """The arguments of a checkpoint; a plan contains these choices."""
    found: dict[str, Any] = {
        "dtype": options.dtype,
        "max_batch_size": options.max_batch_size,
        "max_num_tokens": options.max_num_tokens,
        "enable_iter_perf_stats": options.iteration_stats,
        "cuda_graph_config": _cuda_graphs(options, version),
    }
    if options.max_seq_len is not None:
        found["max_seq_len"] = options.max_seq_len
    if options.expert_parallel > 1:
        found["moe_expert_parallel_size"] = options.expert_parallel
    if options.lora is not None:
        found["lora_config"] = _lora(options.lora, lora_modules)
    if options.speculative is None:  # speculative decoding has its own sampler
        found |= _sampler(options, version)
    return found


def _queue(version: Version) -> dict[str, str]:
    if version < QUEUE_HAS_PRIORITIES_SINCE:
        return {}
    return {"waiting_queue_policy": "priority"}


def _cuda_graphs(options: GpuOptions, version: Version) -> dict[str, Any] | None:
    """None switches CUDA graphs off.

    Without padding, upstream has no graphs for batches of 33 to 63 and of 65 to 127 requests, and
    decodes them eagerly (CudaGraphConfig in llm_args.py).
    """
    if options.lora is not None and version < LORA_HAS_GRAPHS_SINCE:
        return None
    return {"enable_padding": True, "max_batch_size": options.max_batch_size}


def _lora(lora: Lora, modules: Mapping[str, str]) -> dict[str, Any]:
    """Names the modules instead of `lora_dir`.

    `lora_dir` takes one adapter only, and its modules and output layer would be used for all.
    The host's memory holds all adapters, because one that was evicted there may not come back.
    """
    return {
        "lora_target_modules": list(modules),
        "trtllm_modules_to_hf_modules": dict(modules),
        "max_lora_rank": lora.max_rank,
        "max_loras": min(lora.max_loras, len(lora.adapters)),
        "max_cpu_loras": len(lora.adapters),
    }


def _sampler(options: GpuOptions, version: Version) -> dict[str, Any]:
    if version < SAMPLER_HAS_TYPE_SINCE:
        return {"use_torch_sampler": options.sampler == "torch"}
    return {"sampler_type": SAMPLERS[options.sampler]}


def _kv_cache(options: GpuOptions) -> dict[str, Any]:
    found: dict[str, Any] = {
        "free_gpu_memory_fraction": options.kv_cache.fraction,
        "enable_block_reuse": options.kv_cache.reuse,
    }
    if options.kv_cache.host_offload_gb > 0:
        found["host_cache_size"] = int(options.kv_cache.host_offload_gb * BYTES)
    if options.engine == "pytorch":
        found["dtype"] = options.kv_cache.dtype
    if options.kv_cache.event_buffer_max_size > 0:
        found["event_buffer_max_size"] = options.kv_cache.event_buffer_max_size
    return found


def _speculation(chosen: Speculation, folders: Mapping[str, Path]) -> dict[str, Any]:
    """The dictionary that `DecodingBaseConfig.from_dict` reads, up to 1.2."""
    match chosen:
        case Eagle3():
            draft = {"speculative_model_dir": str(folders["draft"])}
            return {"decoding_type": "Eagle", "max_draft_len": chosen.max_draft_len, **draft}
        case DraftTarget():
            draft = {"speculative_model_dir": str(folders["draft"])}
            return {"decoding_type": "DraftTarget", "max_draft_len": chosen.max_draft_len, **draft}
        case Mtp():
            return {"decoding_type": "MTP", "num_nextn_predict_layers": chosen.layers}
        case NGram():
            return {
                "decoding_type": "NGram",
                "max_draft_len": chosen.max_draft_len,
                "max_matching_ngram_size": chosen.max_matching_ngram_size,
            }
        case Lookahead():
            return {
                "decoding_type": "Lookahead",
                "max_window_size": chosen.window,
                "max_ngram_size": chosen.ngram,
                "max_verification_set_size": chosen.verification,
            }


def backend_parameters(
    options: GpuOptions, engine: Path, folders: Mapping[str, Path]
) -> dict[str, str]:
    """The Triton config parameters of NVIDIA's C++ backend, `tensorrtllm`, as models.yaml decides.

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
