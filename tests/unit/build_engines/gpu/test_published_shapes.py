"""Configurations that were published in 2025 and 2026: what build says of each.

The file has their numbers, as NVIDIA's aiconfigurator keeps them (commit 095f58a5, of 2026-08-21);
Gemma 3's and Granite 4's as other public repositories quote them, without what the defaults of
transformers' classes say.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from build_engines.errors import BuildError
from build_engines.gpu import memory, recipe
from build_engines.gpu.architecture import Architecture
from build_engines.gpu.options import GpuOptions
from build_engines.models_file import ModelsFile
from build_engines.vllm import build as vllm_build
from tests.fixtures import published
from tests.unit.build_engines.gpu.recipes import context

FILE = Path(published.__file__).with_name("of_2025_and_2026.json")
PUBLISHED = {name: each["config"] for name, each in json.loads(FILE.read_text()).items()}
GPUS = (1, 2, 4, 8)
# Billions of parameters as the model card has them, without the vision part; bytes of one token in
# the KV cache; megabytes of a request's state; gigabytes of weights; and the least number of GPUs
# of 80 GB, split by tensor, for a context of 32,768 tokens. None: more than 8.
KNOWN = {
    "MiniMaxAI/MiniMax-M2.5": (229, 253_952, 0, 230, 4),
    "Qwen/Qwen3-235B-A22B-FP8": (235, 192_512, 0, 236, 4),
    "Qwen/Qwen3.5-27B": (26.9, 65_536, 151, 53.8, 1),
    "Qwen/Qwen3.5-35B-A3B": (34.7, 20_480, 63, 69.3, 1),
    "deepseek-ai/DeepSeek-V3.2": (671, 85_888, 0, 674, None),
    "google/gemma-3-12b-it": (11.8, 393_216, 0, 23.5, 1),
    "ibm-granite/granite-4.0-h-small": (32.2, 16_384, 75, 64.4, 1),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (400, 196_608, 0, 801, None),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (108, 196_608, 0, 215, 4),
    "moonshotai/Kimi-K2.5": (1026, 70_272, 0, None, 1),  # compressed-tensors: not estimated
    "nvidia/GLM-5.1-NVFP4": (744, 54_912, 0, 421, 8),
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": (49.9, 200_704, 0, 99.7, 2),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6, 6_144, 48, 63.2, 1),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120.6, 4_096, 168, 121.7, 2),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": (550, 6_144, 403, 312, 8),
    "nvidia/Nemotron-H-56B-Base-8K": (56.3, 40_960, 453, 112.6, 2),
    "nvidia/Qwen3.5-397B-A17B-NVFP4": (396, 15_360, 189, 226, 4),
    "nvidia/Qwen3.6-35B-A3B-NVFP4": (34.7, 10_240, 63, None, 1),  # mixed precision: not estimated
    "openai/gpt-oss-120b": (116.8, 73_728, 0, 63.7, 1),
    "zai-org/GLM-5-FP8": (744, 109_824, 0, 746, None),
}
# Served without any arithmetic, which is said; and the field for which the shape is not known.
UNKNOWN = {
    "MiniMaxAI/MiniMax-M3": "sparse_attention_config",
    "XiaomiMiMo/MiMo-V2-Flash": "hybrid_layer_pattern",
    "deepseek-ai/DeepSeek-V4-Flash": "compress_ratios",
    "moonshotai/Kimi-K3": "linear_attn_config",
    "nvidia/Gemma-4-31B-IT-NVFP4": "global_head_dim",
}


def test_every_configuration_of_the_file_is_in_a_table():
    assert {*KNOWN, *UNKNOWN} == PUBLISHED.keys()
    assert len(PUBLISHED) >= 24


def entry(runtime: str, folder: Path, **options: object):
    section = "vllm" if runtime == "vllm" else "gpu"
    given = {"weights": str(folder), "runtime": runtime, section: options}
    return ModelsFile.model_validate({"models": {"m": given}}).models["m"]


def vllm_problems(shape: Architecture, gpus: int) -> list[str]:
    made = entry("vllm", Path(), tensor_parallel=gpus)
    return list(vllm_build.problems(made, shape, 32_768, gpu_gb=80, machine_gb=64))


@pytest.mark.parametrize("name", KNOWN)
def test_size_cache_and_the_least_number_of_gpus(name):
    billions, kv_token, state_mb, weights_gb, least = KNOWN[name]
    shape = Architecture.read(PUBLISHED[name])
    found = memory.estimate(shape, GpuOptions())
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert found.kv_token == kv_token
    assert round(found.state / 1e6) == state_mb
    assert weights_gb is None or found.weights / 1e9 == pytest.approx(weights_gb, rel=0.01)
    fitting = [gpus for gpus in GPUS if not vllm_problems(shape, gpus)]
    assert next(iter(fitting), None) == least


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_shape_is_a_note_and_the_model_is_built(name, tmp_path):
    shape, note = recipe.known_shape(PUBLISHED[name])
    assert shape is None
    assert note.startswith("sharding and memory are not checked: ")
    assert UNKNOWN[name] in note
    options = {"memory_gb": 80, "architecture": "hopper", "max_seq_len": 32_768}
    config = {"max_position_embeddings": 65_536, **PUBLISHED[name]}
    made = recipe.make(entry("tensorrt_llm", tmp_path, **options), config, context(tmp_path))
    assert note in made.notes
    assert made.context_length == 32_768
    plan = entry("tensorrt_llm", tmp_path, engine="plan", **options)
    with pytest.raises(BuildError, match="is not known here"):
        recipe.make(plan, config, context(tmp_path))


@pytest.mark.parametrize("value", ["64", [64, 64], -1, 0, None, 1.5])
def test_a_size_that_is_no_number_is_an_unknown_shape(value):
    config = published.config("llama-3.1-8b")
    for field in ("intermediate_size", "hidden_size", "num_attention_heads", "vocab_size"):
        shape, note = recipe.known_shape({**config, field: value})
        assert shape is None
        assert "does not state the model's shape" in note
