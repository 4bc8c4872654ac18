"""The Triton config parameters of a model's four Triton models: facts and policy as strings."""

from __future__ import annotations

import os

from build_engines import triton_models
from build_engines.facts import Facts
from build_engines.models_file import ModelEntry, OnnxOptions

# A second. Beside an engine that decodes on the same cores, sending takes what decoding needs.
RESPONSES_A_CORE = {"onnx": 300, "scripted": 1000}
GUIDE_TIMEOUT_S, GUIDE_MEMORY_MB = 5, 512
Parameters = dict[str, str]


def of(name: str, entry: ModelEntry, facts: Facts, kv_bytes: int) -> dict[str, Parameters]:
    """By role. Paths are relative to a Triton model's folder."""
    artifacts = {"artifacts_dir": f"../../{name}"}
    context_length = {"context_length": str(facts.context_length)}
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
            **context_length,
            **({} if most is None else {"default_max_tokens": str(most)}),
            "vocab_size": str(facts.vocab_size),
            "guide_timeout_s": str(GUIDE_TIMEOUT_S),
            "guide_memory_mb": str(GUIDE_MEMORY_MB),
        },
        "engine": {
            **artifacts,
            **context_length,
            "runtime": entry.runtime,
            "end_ids": ",".join(map(str, facts.end_ids)),
            "responses_per_s": str(RESPONSES_A_CORE[entry.runtime] * _cores()),
            "hold_ms": str(entry.hold_ms),
            **(_onnx(entry.onnx, kv_bytes) if entry.runtime == "onnx" else {}),
        },
        "detokenizer": artifacts,
    }


def _onnx(options: OnnxOptions, kv_bytes: int) -> Parameters:
    """Eight rows a core: beyond that, a CPU's step grows as fast as its rows."""
    return {
        "kv_cache_bytes": str(kv_bytes),
        "threads": str(options.threads or 0),  # 0: one a core
        "max_rows": str(options.max_rows or min(64, 8 * _cores())),
        "max_step_tokens": str(options.max_step_tokens),
        "prefill_stall_ms": str(options.prefill_stall_ms or 0),  # 0: worked out as it runs
    }


def _cores() -> int:
    return os.cpu_count() or 1
