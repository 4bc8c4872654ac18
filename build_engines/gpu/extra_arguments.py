"""`gpu.llm_args`: arguments of TensorRT-LLM's `LLM` that no option of ours sets.

refusals.py calls `refused` when models.yaml is read, recipe.py calls `problems` when the version
is known, and llm_args.py merges the arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from build_engines.upstream.argument_types import differences, unknown_field
from build_engines.upstream.signatures import RecordedClasses

CLASS = "TorchLlmArgs"
MOST_CHARACTERS = 10_000  # of all arguments, as JSON
LARGEST = 2**63
WORD = re.compile(r"[\w-]{1,64}")

# The option that decides an argument.
OPTIONS = {
    "model": "weights",
    "tokenizer": "weights",
    "revision": "weights: hf://org/name@revision",
    "tokenizer_revision": "weights: hf://org/name@revision",
    "backend": "gpu.engine",
    "dtype": "gpu.dtype",
    "tensor_parallel_size": "gpu.tensor_parallel",
    "pipeline_parallel_size": "gpu.pipeline_parallel",
    "moe_expert_parallel_size": "gpu.expert_parallel",
    "moe_tensor_parallel_size": "gpu.expert_parallel, which divides gpu.tensor_parallel",
    "moe_cluster_parallel_size": "gpu.expert_parallel",
    "gpus_per_node": "gpu.gpus_per_node",
    "enable_attention_dp": "gpu.attention_dp",
    "max_batch_size": "gpu.max_batch_size",
    "max_num_tokens": "gpu.max_num_tokens",
    "max_seq_len": "gpu.max_seq_len",
    "max_input_len": "context_length",
    "kv_cache_config.free_gpu_memory_fraction": "gpu.kv_cache.fraction",
    "kv_cache_config.enable_block_reuse": "gpu.kv_cache.reuse",
    "kv_cache_config.host_cache_size": "gpu.kv_cache.host_offload_gb",
    "kv_cache_config.dtype": "gpu.kv_cache.dtype",
    "kv_cache_config.event_buffer_max_size": "gpu.kv_cache.event_buffer_max_size",
    "enable_chunked_prefill": "gpu.chunked_prefill",
    "scheduler_config.capacity_scheduler_policy": "gpu.scheduler",
    "guided_decoding_backend": "gpu.guided_decoding",
    "sampler_type": "gpu.sampler",
    "use_torch_sampler": "gpu.sampler",
    "speculative_config": "gpu.speculative",
    "decoding_config": "gpu.speculative",
    "lora_config": "gpu.lora",
    "enable_lora": "gpu.lora",
    "enable_iter_perf_stats": "gpu.iteration_stats",
    "orchestrator_type": "gpu.mpi",
    "mpi_session": "gpu.mpi",
    "reasoning_parser": "reasoning_parser of the model",
    "env_overrides": "the environment of the container",
    "otlp_traces_endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT of the proxy",
}
_NOT_READ = "nothing here reads what it adds to responses"
_IDS = "the engine must return token ids, one by one and in order: detokenizing is another model's"
_CODE = "it names code, or takes a Python object"
REFUSED = {
    "skip_tokenizer_init": "guided decoding needs the tokenizer",
    "tokenizer_mode": "prompts are tokenized by another Triton model, from tokenizer.json",
    "custom_tokenizer": _CODE,
    "trust_remote_code": "it runs Python code that comes with the weights",
    "checkpoint_loader": _CODE,
    "checkpoint_format": _CODE,
    "batched_logits_processor": _CODE,
    "kv_connector_config": _CODE,
    "ray_worker_extension_cls": _CODE,
    "moe_config.load_balancer": "it names a file",
    "peft_cache_config.lora_prefetch_dir": "it names a folder, and TensorRT-LLM refuses it",
    "context_parallel_size": "build counts tensor_parallel x pipeline_parallel GPUs",
    "cp_config": "build counts tensor_parallel x pipeline_parallel GPUs",
    "dwdp_config": "build counts tensor_parallel x pipeline_parallel GPUs",
    "ray_placement_config": "the engine's workers are MPI processes",
    "ray_worker_nsight_options": "the engine's workers are MPI processes",
    "load_format": "it may load random weights, or a part of them",
    "mm_encoder_only": "such a model generates nothing",
    "encode_only": "such a model generates nothing",
    "generation_config": "sampling comes with each request, and from models.yaml",
    "post_processor_hook": _CODE,
    "gms_config": "it names a service that holds weights",
    "mx_config": "it names a server that has weights",
    "perf_metrics_output_dir": "it names a folder",
    "layer_wise_benchmarks_config": "it names a file",
    "kv_cache_config.disk_cache_path": "it names a folder",
    "kv_cache_config.kv_events_config": "it opens a port, on which prompts can be read",
    "max_beam_width": "a stream has one beam",
    "gather_generation_logits": _NOT_READ,
    "num_postprocess_workers": _IDS,
    "postprocess_tokenizer_dir": _IDS,
    "cache_transceiver_config": "prefill and decode on different engines are not supported",
    "sparse_attention_config": "build counts a KV cache of all tokens",
    "kv_cache_compression_config": "build counts a KV cache of all tokens",
    "model_kwargs": "it changes the model, and build reads config.json",
}
NEED_ATTENTION_DP = ("enable_lm_head_tp_in_adp", "attention_dp_config")
# Taken in place of what `llm_args.of` has; others are merged with it, key by key.
REPLACED = frozenset({"cuda_graph_config", "stream_interval"})


def refused(extra: Mapping[str, Any], *, attention_dp: bool) -> Iterator[tuple[str, str]]:
    """(the argument, the reason) of what no version may be given."""
    if len(json.dumps(extra)) > MOST_CHARACTERS:
        yield "", f"has more than {MOST_CHARACTERS:,} characters"
    for place, value in _items(extra):
        if place in OPTIONS:
            yield place, f"is set by {OPTIONS[place]}: use that"
        elif place in REFUSED:
            yield place, f"is refused: {REFUSED[place]}"
        elif place in NEED_ATTENTION_DP and not attention_dp:
            yield place, "has an effect with gpu.attention_dp only"
        elif isinstance(value, str) and not WORD.fullmatch(value):
            yield place, f"is {value[:64]!r}: paths, addresses and names of code are refused"
        elif isinstance(value, int | float) and not abs(value) < LARGEST:
            yield place, f"is {value}, must be a number below 2**63"


def problems(
    extra: Mapping[str, Any], own: Mapping[str, Any], record: RecordedClasses
) -> Iterator[str]:
    """Why this version of TensorRT-LLM cannot take these arguments beside our own."""
    fields = record.fields(CLASS)
    for name, value in extra.items():
        place = f"llm_args.{name}"
        if name not in fields:
            yield unknown_field(name, record, CLASS, place)
        else:
            yield from differences(value, fields[name]["type"], record, place)
    taken = dict(_items(own))
    for place, _ in _items(extra):
        name = place.partition(".")[0]
        if name not in REPLACED and not isinstance(taken.get(place, {}), dict):
            yield f"llm_args.{place} is set by build, to {taken[place]!r}: leave it out"
        elif place in REPLACED and taken.get(place, "") is None:
            yield f"llm_args.{place} must stay off: CUDA graphs change the answers of adapters"


def merged(own: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(own)
    for name, value in extra.items():
        before = found.get(name)
        is_merged = isinstance(before, dict) and isinstance(value, dict) and name not in REPLACED
        found[name] = {**before, **value} if is_merged and before is not None else value
    return found


def _items(arguments: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Each value with its path, also those that contain others."""
    if place:
        yield place, arguments
    if isinstance(arguments, dict):
        for name, value in arguments.items():
            yield from _items(value, f"{place}.{name}" if place else str(name))
    elif isinstance(arguments, list):
        for item in arguments:
            yield from _items(item, f"{place}[]")
