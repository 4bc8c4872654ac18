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
_GPUS = "build counts tensor_parallel x pipeline_parallel GPUs"
_CACHE = "build counts a KV cache of all tokens"
_WEIGHTS = "the weights come from the folder that build made, all of them"
_SILENT = "such a model generates nothing"
REFUSED = {
    "skip_tokenizer_init": "guided decoding needs the tokenizer",
    "tokenizer_mode": "prompts are tokenized by another Triton model, from tokenizer.json",
    "trust_remote_code": "it runs Python code that comes with the weights",
    "generation_config": "the model's sampling section has the defaults",
    "model_kwargs": "it changes the model, and build reads config.json",
    "checkpoint_format": _WEIGHTS,
    "load_format": _WEIGHTS,
    "mx_config": _WEIGHTS,
    "gms_config": _WEIGHTS,
    "kv_connector_config": "it names code",
    "moe_config.load_balancer": "it names a file",
    "kv_cache_config.kv_events_config": "it opens a port, on which prompts can be read",
    "layer_wise_benchmarks_config": "it names a file",
    "cache_transceiver_config": "prefill and decode on different engines are not supported",
    "context_parallel_size": _GPUS,
    "cp_config": _GPUS,
    "dwdp_config": _GPUS,
    "ray_placement_config": "the engine's workers are MPI processes",
    "mm_encoder_only": _SILENT,
    "encode_only": _SILENT,
    "max_beam_width": "a stream has one beam",
    "gather_generation_logits": "nothing here reads what it adds to responses",
    "num_postprocess_workers": "the engine returns token ids: text is another Triton model's work",
    "num_serve_frontends": "it is for trtllm-serve",
    "sparse_attention_config": _CACHE,
    "kv_cache_compression_config": _CACHE,
}
# The last part of the name of an argument that takes a file, an address, or code to import.
FOREIGN = re.compile(r"(?:path|dir|file|url|endpoint|hook|cls|class|loader|tokenizer|options)$")
NEED_ATTENTION_DP = ("enable_lm_head_tp_in_adp", "attention_dp_config")
# Taken in place of what `llm_args.of` has; others are merged with it, key by key.
REPLACED = frozenset({"cuda_graph_config", "stream_interval"})


def refused(extra: Mapping[str, Any], *, attention_dp: bool) -> Iterator[tuple[str, str]]:
    """(the argument, the reason) of what no version may be given."""
    yield from refused_by(extra, options=OPTIONS, refused=REFUSED, foreign=FOREIGN)
    for name in NEED_ATTENTION_DP:
        if name in extra and not attention_dp:
            yield name, "has an effect with gpu.attention_dp only"


def refused_by(
    extra: Mapping[str, Any],
    *,
    options: Mapping[str, str],
    refused: Mapping[str, str],
    foreign: re.Pattern[str],
) -> Iterator[tuple[str, str]]:
    """options: argument -> the option that decides it. refused: argument -> the reason.

    foreign: finds names of arguments that take a file, an address, or code.
    """
    if len(json.dumps(extra)) > MOST_CHARACTERS:
        yield "", f"has more than {MOST_CHARACTERS:,} characters"
    for place, value in _items(extra):
        if place in options:
            yield place, f"is set by {options[place]}: use that"
        elif place in refused:
            yield place, f"is refused: {refused[place]}"
        elif foreign.search(place):
            yield place, "is refused: it names a file, an address, or code"
        elif isinstance(value, str) and not WORD.fullmatch(value):
            yield place, f"is {value[:64]!r}, must be one word"
        elif isinstance(value, int | float) and not abs(value) < LARGEST:
            yield place, f"is {value}, must be a number below 2**63"


def problems(
    extra: Mapping[str, Any],
    own: Mapping[str, Any],
    record: RecordedClasses,
    *,
    owner: str = CLASS,
    section: str = "llm_args",
) -> Iterator[str]:
    """Why the recorded version cannot take these arguments beside our own."""
    fields = record.fields(owner)
    for name, value in extra.items():
        place = f"{section}.{name}"
        if name not in fields:
            yield unknown_field(name, record, owner, place)
        else:
            yield from differences(value, fields[name]["type"], record, place)
    taken = dict(_items(own))
    for place, _ in _items(extra):
        name = place.partition(".")[0]
        if name not in REPLACED and not isinstance(taken.get(place, {}), dict):
            yield f"{section}.{place} is set by build, to {taken[place]!r}: leave it out"
        elif place in REPLACED and taken.get(place, "") is None:
            yield f"llm_args.{place} must stay off: CUDA graphs change the answers of adapters"


def merged(own: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(own)
    for name, value in extra.items():
        before = found.get(name)
        if name not in REPLACED and isinstance(before, dict) and isinstance(value, dict):
            found[name] = before | value
        else:
            found[name] = value
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
