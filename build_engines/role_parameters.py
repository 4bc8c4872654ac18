"""The Triton config parameters of a model's four Triton models: facts and policy as strings."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version
from typing_extensions import assert_never

from build_engines import fetch, triton_models
from build_engines.engine_limits import EVERY_KIND, TrtllmEngine
from build_engines.facts import Facts
from build_engines.gpu import adapter, llm_args, memory, recipe
from build_engines.gpu.legacy import backend_parameters
from build_engines.gpu.llm_args import SAMPLERS
from build_engines.gpu.options import GpuOptions
from build_engines.json_files import read_object
from build_engines.models_file import (
    BuiltEntry,
    GpuEntry,
    OnnxEntry,
    OnnxOptions,
    ScriptedEntry,
    VllmEntry,
)
from build_engines.vllm import arguments as vllm_arguments
from build_engines.vllm import build as vllm_build

# Wanted per second. On a CPU the engine decodes on the same cores, so a message costs decode time.
RESPONSES_A_CORE = {"onnx": 300, "scripted": 1000, "tensorrt_llm": 1000, "vllm": 1000}
GUIDE_TIMEOUT_S, GUIDE_MEMORY_MB = 5, 512
# TensorRT-LLM compiles a guide in the loop in which all its requests decode; vLLM in a thread.
GUIDE_COMPILE_S = {"onnx": 5, "scripted": 5, "tensorrt_llm": 0.3, "tensorrtllm": 0.3, "vllm": 5}
QUEUE_A_ROW, QUEUE_AT_LEAST, QUEUE_AT_MOST = 16, 256, 4096
SCRIPTED_STREAMS = 16_384  # that fit into a scripted engine, which has no rows
Parameters = dict[str, str]
Engine = OnnxEntry | ScriptedEntry | GpuEntry | VllmEntry


def on_cpu(name: str, entry: OnnxEntry, facts: Facts, kv_bytes: int) -> dict[str, Parameters]:
    """Parameters by role. Paths are relative to a Triton model's folder."""
    rows = _rows(entry)
    engine = {
        **_python_engine(name, entry, facts, rows),
        "kv_cache_bytes": str(kv_bytes),
        **_onnx(entry.onnx, rows),
    }
    return _by_role(name, entry, facts, _guides(entry, EVERY_KIND), engine)


def scripted(name: str, entry: ScriptedEntry, facts: Facts) -> dict[str, Parameters]:
    """Parameters by role. The queue's limit bounds all requests, for lack of rows."""
    engine = _python_engine(name, entry, facts, 0 if entry.max_queue else SCRIPTED_STREAMS)
    return _by_role(name, entry, facts, _guides(entry, EVERY_KIND), engine)


def on_gpus(
    name: str,
    entry: GpuEntry,
    facts: Facts,
    built: Path,
    *,
    version: Version,
    memory_gb: float | None,
) -> dict[str, Parameters]:
    """Parameters by role. TensorRT-LLM gets absolute paths.

    Args:
        built: artifacts/<name>/.
        version: of TensorRT-LLM.
        memory_gb: of one GPU; None if it is unknown.
    """
    beside = _links(built.resolve())
    config = fetch.config(fetch.Here("weights", beside["weights"])) or {}
    shape, _ = recipe.known_shape(config)
    options = memory.with_rows(shape, entry.gpu, memory_gb=memory_gb)
    entry = entry.model_copy(update={"gpu": options})
    logits_size = {"logits_size": str(shape.vocabulary if shape else facts.vocab_size)}
    limits = served_engine(entry, facts, version)
    tokenizer = _guides(entry, limits.guide_kinds)
    rows = _rows(entry)
    if limits.backend == "cpp":
        end_ids = {"executor_end_ids": ",".join(map(str, facts.end_ids))}
        engine = {
            **backend_parameters.of(entry.gpu, beside["engine"], beside),
            triton_models.MAX_QUEUE: str(_queue(entry, rows)),
        }
        return _by_role(name, entry, facts, {**tokenizer, **end_ids, **logits_size}, engine)
    adapters = {name: beside[llm_args.LORA + name] for name in entry.adapter_names}
    arguments = llm_args.of(
        entry.gpu,
        beside,
        version=version,
        lora_modules=adapter.modules(list(adapters.values())),
        plan=_build_config(beside["engine"]) if entry.gpu.engine == "plan" else None,
    )
    engine = {
        **_python_engine(name, entry, facts, rows),
        **logits_size,
        "trtllm_backend": limits.backend,
        "llm_args": json.dumps(arguments, sort_keys=True),
        "lora_adapters": json.dumps({name: str(folder) for name, folder in adapters.items()}),
        "max_log_probs": "" if limits.max_log_probs is None else str(limits.max_log_probs),
        **_process(entry.gpu),
    }
    return _by_role(name, entry, facts, tokenizer, engine)


def on_vllm(name: str, entry: VllmEntry, facts: Facts, built: Path) -> dict[str, Parameters]:
    """Parameters by role. built: artifacts/<name>/. vLLM gets absolute paths of adapters."""
    options, lora = entry.vllm, built.resolve() / vllm_build.ADAPTERS
    arguments = vllm_arguments.of(
        options,
        context_length=facts.context_length,
        reads_images=vllm_build.reads_images(built),
    )
    engine = {
        **_python_engine(name, entry, facts, options.max_rows),
        "logits_size": str(vllm_build.vocabulary_of(built) or facts.vocab_size),
        "vllm_args": json.dumps(arguments, sort_keys=True),
        "lora_adapters": json.dumps(
            {each: str((lora / each).resolve()) for each in entry.adapter_names}
        ),
        "devices": ",".join(map(str, options.devices or ())),
        "hang_seconds": str(options.hang_seconds),
    }
    if options.environment is not None:
        engine["EXECUTION_ENV_PATH"] = str(options.environment)
    return _by_role(name, entry, facts, _guides(entry, EVERY_KIND), engine)


def _build_config(plan: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_object(plan / "config.json")["build_config"]
    return found


def _process(options: GpuOptions) -> Parameters:
    """How the process of a model on TensorRT-LLM's LLM API runs, and when it counts as dead."""
    return {
        "devices": ",".join(map(str, options.devices or ())),
        "single_process": str(options.mpi == "single_process").lower(),
        "hang_seconds": str(options.hang_seconds),
    }


def _links(built: Path) -> dict[str, Path]:
    """The links that `assembly` made there, by name."""
    found = {path.name: path.resolve() for path in built.iterdir() if path.is_symlink()}
    adapters = {f"{llm_args.LORA}{path.name}": path.resolve() for path in built.glob("lora/*")}
    return {**found, **adapters}


def _by_role(
    name: str,
    entry: Engine,
    facts: Facts,
    tokenizer: Parameters,
    engine: Parameters,
) -> dict[str, Parameters]:
    artifacts = _artifacts(name)
    most, adapters = entry.default_max_tokens, entry.adapter_names
    return {
        "ensemble": {
            "contract_version": triton_models.CONTRACT_VERSION,
            **{
                f"{role}_model": triton_models.role_name(name, role) for role in triton_models.ROLES
            },
            "runtime": entry.runtime,
            **_said_rows(entry),
            **({"lora_adapters": json.dumps(adapters)} if adapters else {}),
            **facts.as_parameters(),
        },
        "tokenizer": {
            **artifacts,
            "context_length": str(facts.context_length),
            **({} if most is None else {"default_max_tokens": str(most)}),
            "vocab_size": str(facts.vocab_size),
            "guide_timeout_s": str(GUIDE_TIMEOUT_S),
            "guide_compile_s": str(GUIDE_COMPILE_S[entry.runtime]),
            "guide_memory_mb": str(GUIDE_MEMORY_MB),
            **tokenizer,
        },
        "engine": engine,
        "detokenizer": artifacts,
    }


def _guides(entry: BuiltEntry, kinds: Collection[str]) -> Parameters:
    """The guide kinds that the engine supports and models.yaml does not disable."""
    return {"guide_kinds": ",".join(kind for kind in kinds if kind not in entry.disabled_guides)}


def _queue(entry: BuiltEntry, rows: int) -> int:
    """How many requests may wait for a row."""
    return entry.max_queue or min(max(QUEUE_AT_LEAST, QUEUE_A_ROW * rows), QUEUE_AT_MOST)


def _python_engine(name: str, entry: Engine, facts: Facts, rows: int) -> Parameters:
    """Parameters that every runtime needs."""
    return {
        **_artifacts(name),
        "public_name": name,
        "context_length": str(facts.context_length),
        "runtime": entry.runtime,
        "end_ids": ",".join(map(str, facts.end_ids)),
        "responses_a_core": str(RESPONSES_A_CORE[entry.runtime]),
        "hold_ms": str(entry.hold_ms),
        "max_unfinished": str(rows + _queue(entry, rows)),
    }


def _artifacts(name: str) -> Parameters:
    return {"artifacts_dir": f"../../{name}"}


def _said_rows(entry: Engine) -> Parameters:
    """The ensemble's parameter; a scripted engine decodes as many requests as come."""
    return {} if isinstance(entry, ScriptedEntry) else {"rows": str(_rows(entry))}


def _rows(entry: OnnxEntry | GpuEntry | VllmEntry) -> int:
    """How many requests the engine decodes at once."""
    match entry:
        case OnnxEntry():  # with more than eight rows per core, a step takes longer in proportion
            return entry.onnx.max_rows or min(64, 8 * _cores())
        case GpuEntry():
            return entry.gpu.rows
        case VllmEntry():
            return entry.vllm.max_rows
        case _:
            assert_never(entry)


def _onnx(options: OnnxOptions, rows: int) -> Parameters:
    return {
        "threads": str(options.threads or 0),  # 0: one per core
        "max_rows": str(rows),
        "max_step_tokens": str(options.max_step_tokens),
        "prefill_stall_ms": str(
            options.prefill_stall_ms or 0
        ),  # 0: the engine adapts it at run time
        "exact_resume_tokens": str(options.exact_resume_tokens),
    }


def _cores() -> int:
    return os.cpu_count() or 1


def served_engine(entry: GpuEntry, facts: Facts, version: Version) -> TrtllmEngine:
    """Which requests the engine can serve, see engine_limits."""
    return TrtllmEngine(
        version=version,
        backend=_backend(entry),
        sampler=SAMPLERS[entry.gpu.sampler or llm_args.SAMPLER],
        end_tokens=len(facts.end_ids),
        guides=entry.gpu.guided_decoding,
        has_adapters=entry.gpu.lora is not None,
        is_speculative=entry.gpu.speculative is not None,
        reports_blocks=entry.gpu.kv_cache.event_buffer_max_size > 0,
    )


def _backend(entry: GpuEntry) -> Literal["pytorch", "tensorrt", "cpp"]:
    if entry.runtime == "tensorrtllm":
        return "cpp"
    return "pytorch" if entry.gpu.engine == "pytorch" else "tensorrt"
