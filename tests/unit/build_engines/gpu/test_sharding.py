"""Sharding: over how many GPUs each published model can be split, and what is said otherwise."""

from __future__ import annotations

import pytest

from build_engines.gpu.options import GpuOptions
from build_engines.gpu.recipe import sharding_problems
from tests.fixtures.published import PARAMETERS, shape

WAYS = range(1, 65)


def found(name: str, **options: object) -> list[str]:
    return list(sharding_problems(shape(name), GpuOptions.model_validate(options)))


def fitting(name: str, field: str, **options: object) -> list[int]:
    return [ways for ways in WAYS if not found(name, **{**options, field: ways})]


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("llama-3.1-8b", [1, 2, 4, 8, 16, 32]),
        ("llama-3.1-70b", [1, 2, 4, 8, 16, 32, 64]),
        ("qwen2.5-7b", [1, 2, 4]),  # 28 heads, 4 of them for keys and values
        ("qwen3-30b-a3b", [1, 2, 4, 8, 16, 32]),
        ("mistral-7b-v0.3", [1, 2, 4, 8, 16, 32]),
        ("mixtral-8x7b", [1, 2, 4, 8, 16, 32]),
        ("phi-3.5-mini", [1, 2, 4, 8, 16, 32]),
        ("gpt-oss-20b", [1, 2, 4, 8, 16, 32, 64]),
    ],
)
def test_tensor_parallel(name, ways):
    assert fitting(name, "tensor_parallel") == ways


@pytest.mark.parametrize("name", PARAMETERS)
def test_pipeline_parallel_needs_a_layer_a_stage(name):
    """Stages may differ by a layer: upstream's Mapping.pp_layers splits unevenly."""
    assert fitting(name, "pipeline_parallel") == [w for w in WAYS if w <= shape(name).layers]


@pytest.mark.parametrize(
    ("name", "tensor_parallel", "ways"),
    [
        ("qwen3-30b-a3b", 8, [1, 2, 4, 8]),
        ("mixtral-8x7b", 32, [1, 2, 4, 8]),
        ("gpt-oss-20b", 32, [1, 2, 4, 8, 16, 32]),
    ],
)
def test_expert_parallel_divides_the_experts(name, tensor_parallel, ways):
    possible = [w for w in WAYS if tensor_parallel % w == 0]  # the rest is refused in models.yaml
    fitting = [
        w for w in possible if not found(name, tensor_parallel=tensor_parallel, expert_parallel=w)
    ]
    assert fitting == ways


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "qwen2.5-7b",
            {"tensor_parallel": 8},
            "8 does not divide the 28 attention heads: 1, 2,",
        ),
        (
            "qwen2.5-7b",
            {"tensor_parallel": 7},
            "tensor_parallel 7 does not fit the 4 key-value heads: one",
        ),
        (
            "llama-3.1-8b",
            {"tensor_parallel": 2, "expert_parallel": 2},
            "expert_parallel 2, but the model has no experts",
        ),
        (
            "mixtral-8x7b",
            {"tensor_parallel": 16, "expert_parallel": 16},
            "expert_parallel 16 does not divide the 8 experts",
        ),
        ("mixtral-8x7b", {"pipeline_parallel": 33}, "33 is more than the 32 layers"),
        (
            "gpt-oss-20b",
            {"tensor_parallel": 128},
            "tensor_parallel 128 does not divide the 64 attention heads",
        ),
        (
            "gpt-oss-20b",
            {"tensor_parallel": 128},
            "expert_parallel 128 does not divide the 2880 intermediate size",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_what_does(name, options, said):
    assert any(said in problem for problem in found(name, **options)), found(name, **options)


@pytest.mark.parametrize(
    ("name", "quantization", "ways"),
    [
        ("llama-3.1-8b", "int4_awq", [1, 2, 4, 8, 16]),
        ("qwen2.5-7b", "int4_awq", [1, 2, 4]),
        ("qwen2.5-7b", "fp8", [1, 2, 4]),
        ("qwen3-30b-a3b", "w4a8_awq", [1, 2]),
        ("qwen3-30b-a3b", "nvfp4", [1, 2, 4, 8, 16]),
        ("phi-3.5-mini", "int4_awq", [1, 2, 4, 8]),
    ],
)
def test_a_gpus_part_is_whole_blocks(name, quantization, ways):
    possible = [1, 2, 4, 8, 16]
    fitting = [w for w in possible if not found(name, tensor_parallel=w, quantization=quantization)]
    assert fitting == ways
