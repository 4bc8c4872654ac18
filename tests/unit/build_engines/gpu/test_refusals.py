"""refusals: options that do not go together, and where in the section it is said."""

from __future__ import annotations

import pytest

from build_engines.gpu.options import GpuOptions
from build_engines.gpu.refusals import refusals, sharing_conflicts


@pytest.mark.parametrize(
    ("given", "where", "said"),
    [
        ({"calibration": {"samples": 8}}, "calibration", "these options measure no texts"),
        (
            {"kv_cache": {"dtype": "fp8"}, "calibration": {"samples": 8}},
            "calibration",
            "these options measure no texts",
        ),
        (
            {"quantization": "nvfp4", "architecture": "hopper"},
            "quantization",
            "nvfp4 needs Blackwell or later, this GPU is Hopper",
        ),
        (
            {"quantization": "fp8", "architecture": "ampere"},
            "quantization",
            "fp8 needs Ada or later, this GPU is Ampere",
        ),
        (
            {"kv_cache": {"dtype": "fp8"}, "architecture": "ampere"},
            "kv_cache.dtype",
            "fp8 needs Ada",
        ),
        (
            {"speculative": {"method": "ngram"}, "pipeline_parallel": 2},
            "speculative",
            "does not combine speculative decoding with pipeline_parallel",
        ),
        ({"attention_dp": True}, "attention_dp", "there is one GPU only"),
        (
            {"kv_cache": {"host_offload_gb": 8, "reuse": False}},
            "kv_cache.host_offload_gb",
            "reuse is off",
        ),
        (
            {"kv_cache": {"event_buffer_max_size": 8, "reuse": False}},
            "kv_cache.event_buffer_max_size",
            "with kv_cache.reuse on",
        ),
        (
            {
                "tensor_parallel": 2,
                "attention_dp": True,
                "kv_cache": {"event_buffer_max_size": 8},
            },
            "kv_cache.event_buffer_max_size",
            "a cache of its own",
        ),
        (
            {"tensor_parallel": 4, "expert_parallel": 3},
            "expert_parallel",
            "must divide tensor_parallel",
        ),
        ({"max_batch_size": 9000}, "max_num_tokens", "at least max_batch_size"),
        (
            {"speculative": {"method": "ngram"}, "sampler": "torch"},
            "sampler",
            "speculative decoding chooses its own sampler",
        ),
        (
            {"scheduler": "max_utilization"},
            "scheduler",
            "restarts a request's grammar (its issue 18891): use guaranteed_no_evict",
        ),
        (
            {"tensor_parallel": 2, "devices": [0]},
            "devices",
            "names 1 GPUs, but the model needs 2 on a node: tensor_parallel 2 x pipeline",
        ),
        (
            {"tensor_parallel": 4, "gpus_per_node": 2, "devices": [0, 1, 2, 3]},
            "devices",
            "needs 2 on",
        ),
        ({"tensor_parallel": 2, "devices": [1, 1]}, "devices", "a GPU twice"),
        ({"tensor_parallel": 2, "devices": [1, "GPU-0f1e2d3c"]}, "devices", "indices and UUIDs"),
        ({"tensor_parallel": 2, "devices": ["MIG-0f1e", "MIG-0f2e"]}, "devices", "name one"),
        ({"tensor_parallel": 2, "mpi": "single_process"}, "mpi", "single_process is for one GPU"),
        (
            {"tensor_parallel": 16, "mpi": "spawn"},
            "mpi",
            "several nodes is always started by mpirun",
        ),
        (
            {"speculative": {"method": "ngram"}, "lora": {"adapters": {"a": "x"}}},
            "lora",
            "cannot combine speculative decoding with adapters",
        ),
    ],
)
def test_it_is_refused_with_the_reason(given, where, said):
    (refusal,) = refusals(GpuOptions.model_validate(given))
    assert ".".join(refusal.where) == where
    assert said in refusal.reason


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"quantization": "nvfp4", "architecture": "blackwell"},
        {"quantization": "int4_awq", "calibration": {"samples": 64}},
        {"quantization": "nvfp4"},  # the GPU is looked at when it is built
        {"quantization": "fp8", "architecture": "ada", "kv_cache": {"dtype": "fp8"}},
        {"tensor_parallel": 8, "expert_parallel": 4},
        {"guided_decoding": "llguidance", "speculative": {"method": "mtp"}},
        {"architecture": "ampere", "quantization": "int4_awq"},
        {"scheduler": "max_utilization", "guided_decoding": False},  # YAML's `off`
        {"tensor_parallel": 2, "devices": [4, 5]},
        {"tensor_parallel": 4, "gpus_per_node": 2, "devices": [4, 5]},
        {"devices": ["MIG-0f1e2d3c-0000-0000-0000-000000000000"]},
        {"tensor_parallel": 2, "mpi": "spawn"},
        {"mpi": "single_process", "iteration_stats": True, "hang_seconds": 0},
    ],
)
def test_what_goes_together_is_not_refused(given):
    assert not list(refusals(GpuOptions.model_validate(given)))


# models of one file that share a GPU: test_models_file.py has the message


def options(fraction: float = 0.9, **given: object) -> GpuOptions:
    return GpuOptions.model_validate({"kv_cache": {"fraction": fraction}, **given})


def conflicts(**models: GpuOptions) -> list[tuple[str, str]]:
    return list(sharing_conflicts(models))


@pytest.mark.parametrize(
    "models",
    [
        {"a": options()},
        {"a": options(devices=[0]), "b": options(devices=[1])},
        {"a": options(), "b": options(devices=[1])},
        {"a": options(tensor_parallel=2), "b": options(devices=[2, 3], tensor_parallel=2)},
        {"a": options(0.5), "b": options(0.5)},
        {"a": options(0.1), "b": options(0.2), "c": options(0.7)},  # 1.0 but for rounding
        {"a": options(devices=["GPU-aaaa"]), "b": options(devices=["GPU-bbbb"])},
        {"a": options(devices=["GPU-aaaa"]), "b": options()},  # only nvidia-smi can tell
    ],
)
def test_models_with_room_for_each_other(models):
    assert not conflicts(**models)


def test_one_line_for_the_same_models_on_several_gpus_and_one_for_each_other_group():
    found = conflicts(
        a=options(tensor_parallel=4), b=options(tensor_parallel=2), c=options(devices=[3])
    )
    assert [name for name, _ in found] == ["a", "a"]
    assert "on GPU 0" in found[0][1]
    assert "on GPU 3" in found[1][1]
