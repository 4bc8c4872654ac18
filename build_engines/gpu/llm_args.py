"""The keyword arguments of TensorRT-LLM's `LLM`, as its engine's Triton parameter `llm_args`.

The names are those of the installed version's llmapi/llm_args.py. The engine adds `model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from build_engines.engine_limits import TORCH_SAMPLER_IS_WHOLE, Sampler
from build_engines.gpu import extra_arguments
from build_engines.gpu.legacy.options import Lookahead
from build_engines.gpu.options import (
    DraftTarget,
    Eagle3,
    GpuOptions,
    Lora,
    Mtp,
    NGram,
    Speculation,
)

BYTES = 10**9
SAMPLERS: dict[str, Sampler] = {"trtllm": "TRTLLMSampler", "torch": "TorchSampler"}
SAMPLER = "trtllm"  # where there are two
SAMPLER_HAS_TYPE_SINCE = Version("1.1.0")
# The first whose names are recorded in upstream/classes_1.3.json. Its LLM reads the dictionary of
# speculative_config, has one sampler, and does not change answers of adapters by CUDA graphs (its
# pull requests 5480 and 8279). By default its queue ignores priorities (12362).
IS_1_3 = TORCH_SAMPLER_IS_WHOLE
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
        has_from_dict = version < IS_1_3
        found["speculative_config"] = _speculation(options.speculative, folders, has_from_dict)
    if options.engine == "pytorch":
        found["scheduler_config"] |= _queue(version)
        own = found | _pytorch(options, version, lora_modules)
        return extra_arguments.merged(own, options.llm_args)
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
        "stream_interval": stream_interval(options.rows),
        "enable_iter_perf_stats": options.iteration_stats,
        "cuda_graph_config": _cuda_graphs(options, version),
    }
    if options.max_seq_len is not None:
        found["max_seq_len"] = options.max_seq_len
    if options.expert_parallel > 1:
        found["moe_expert_parallel_size"] = options.expert_parallel
    if options.attention_dp:
        found["enable_attention_dp"] = True
    if options.lora is not None:
        found["lora_config"] = _lora(options.lora, lora_modules)
    if options.speculative is None:  # speculative decoding has its own sampler
        found |= _sampler(options, version)
    return found


def stream_interval(rows: int) -> int:
    """A request's first token comes at once, the others with each `interval`th step (pull request
    5836). Each response costs the engine's process up to 100 microseconds, so a full batch should
    not send many more than the 4,000 a second that it sends on: 64 rows with steps of 16 ms. Longer
    batches have longer steps: 53,000 tokens a second are the most that NVIDIA publishes for a GPU.
    """
    return max(1, min(rows // 64, 8))


def _queue(version: Version) -> dict[str, str]:
    if version < IS_1_3:
        return {}
    return {"waiting_queue_policy": "priority"}


def _cuda_graphs(options: GpuOptions, version: Version) -> dict[str, Any] | None:
    """None switches CUDA graphs off.

    Without padding, upstream has no graphs for batches of 33 to 63 and of 65 to 127 requests, and
    decodes them eagerly (CudaGraphConfig in llm_args.py).
    """
    if options.lora is not None and version < IS_1_3:
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
    if version >= IS_1_3:
        return {}
    chosen = options.sampler or SAMPLER
    if version < SAMPLER_HAS_TYPE_SINCE:
        return {"use_torch_sampler": chosen == "torch"}
    return {"sampler_type": SAMPLERS[chosen]}


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


def _speculation(
    chosen: Speculation, folders: Mapping[str, Path], has_from_dict: bool
) -> dict[str, Any]:
    """The dictionary that `DecodingBaseConfig.from_dict` reads, or later `LLM` itself."""
    match chosen:
        case Eagle3():
            kind = "Eagle" if has_from_dict else "Eagle3"
            return _drafted(kind, chosen.max_draft_len, folders["draft"], has_from_dict)
        case DraftTarget():
            kind = "DraftTarget" if has_from_dict else "Draft_Target"
            return _drafted(kind, chosen.max_draft_len, folders["draft"], has_from_dict)
        case Mtp():
            length = "num_nextn_predict_layers" if has_from_dict else "max_draft_len"
            return {"decoding_type": "MTP", length: chosen.layers}
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


def _drafted(kind: str, length: int, draft: Path, has_from_dict: bool) -> dict[str, Any]:
    model = "speculative_model_dir" if has_from_dict else "speculative_model"
    return {"decoding_type": kind, "max_draft_len": length, model: str(draft)}
