"""The Triton config parameters of a model's four Triton models: facts and policy as strings."""

from __future__ import annotations

import json
import os
from pathlib import Path

from build_engines import triton_models
from build_engines.facts import Facts
from build_engines.gpu import backend_parameters, llm_args
from build_engines.gpu.architecture import Architecture
from build_engines.models_file import GpuEntry, OnnxEntry, OnnxOptions

RESPONSES_A_CORE = 300  # a second: with more, sending takes the CPU that decoding needs
GUIDE_TIMEOUT_S, GUIDE_MEMORY_MB = 5, 512
TRTLLM_BACKENDS = {"pytorch": "pytorch", "plan": "tensorrt"}  # which of its `LLM` classes
Parameters = dict[str, str]


def on_cpu(name: str, entry: OnnxEntry, facts: Facts, kv_bytes: int) -> dict[str, Parameters]:
    """By role. Paths are relative to a Triton model's folder."""
    engine = {"kv_cache_bytes": str(kv_bytes), **_onnx(entry.onnx)}
    return _by_role(name, entry, facts, {**_python_engine(name, entry, facts), **engine})


def on_gpus(name: str, entry: GpuEntry, facts: Facts, built: Path) -> dict[str, Parameters]:
    """The same; `built` is artifacts/<name>/, to which TensorRT-LLM gets absolute paths."""
    folder = built.resolve()
    beside = {path.name: path.resolve() for path in folder.iterdir() if path.is_symlink()}
    beside |= {f"{llm_args.LORA}{path.name}": path.resolve() for path in folder.glob("lora/*")}
    if entry.runtime == "tensorrtllm":
        engine = backend_parameters.of(entry.gpu, beside["engine"], beside)
        return _by_role(name, entry, facts, engine)
    config = json.loads((folder / "weights" / "config.json").read_text(encoding="utf-8"))
    engine = {
        **_python_engine(name, entry, facts),
        "trtllm_backend": TRTLLM_BACKENDS[entry.gpu.engine],
        "llm_args": json.dumps(llm_args.of(entry.gpu, beside), sort_keys=True),
        "logits_size": str(Architecture.read(config).vocabulary),
    }
    if entry.gpu.lora is not None:
        adapters = {name: str(beside[llm_args.LORA + name]) for name in entry.gpu.lora.adapters}
        engine["lora_adapters"] = json.dumps(adapters, sort_keys=True)
    return _by_role(name, entry, facts, engine)


def _by_role(
    name: str, entry: OnnxEntry | GpuEntry, facts: Facts, engine: Parameters
) -> dict[str, Parameters]:
    artifacts = _artifacts(name)
    most = entry.sampling.max_tokens
    return {
        "ensemble": {
            "contract_version": triton_models.CONTRACT_VERSION,
            **{
                f"{role}_model": triton_models.role_name(name, role) for role in triton_models.ROLES
            },
            "runtime": entry.runtime,
            **facts.as_parameters(),
        },
        "tokenizer": {
            **artifacts,
            "context_length": str(facts.context_length),
            **({} if most is None else {"default_max_tokens": str(most)}),
            "vocab_size": str(facts.vocab_size),
            "guide_timeout_s": str(GUIDE_TIMEOUT_S),
            "guide_memory_mb": str(GUIDE_MEMORY_MB),
        },
        "engine": engine,
        "detokenizer": artifacts,
    }


def _python_engine(name: str, entry: OnnxEntry | GpuEntry, facts: Facts) -> Parameters:
    """What the engine's shell needs, whatever its runtime."""
    return {
        **_artifacts(name),
        "context_length": str(facts.context_length),
        "runtime": entry.runtime,
        "end_ids": ",".join(map(str, facts.end_ids)),
        "responses_per_s": str(RESPONSES_A_CORE * _cores()),
        "hold_ms": str(entry.hold_ms),
    }


def _artifacts(name: str) -> Parameters:
    return {"artifacts_dir": f"../../{name}"}


def _onnx(options: OnnxOptions) -> Parameters:
    """Eight rows a core: beyond that, a CPU's step grows as fast as its rows."""
    return {
        "threads": str(options.threads or 0),  # 0: one a core
        "max_rows": str(options.max_rows or min(64, 8 * _cores())),
        "max_step_tokens": str(options.max_step_tokens),
        "prefill_stall_ms": str(options.prefill_stall_ms or 0),  # 0: worked out as it runs
    }


def _cores() -> int:
    return os.cpu_count() or 1
