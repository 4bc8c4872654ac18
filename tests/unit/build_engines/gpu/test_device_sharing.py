"""device_sharing: models of one file share a GPU only if their fractions add up to at most one."""

from __future__ import annotations

import pytest

from build_engines.gpu import refusals
from build_engines.gpu.options import GpuOptions


def options(fraction: float = 0.9, **given: object) -> GpuOptions:
    return GpuOptions.model_validate({"kv_cache": {"fraction": fraction}, **given})


def conflicts(**models: GpuOptions) -> list[tuple[str, str]]:
    return list(refusals.sharing_conflicts(models))


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


@pytest.mark.parametrize(
    ("models", "device"),
    [
        ({"a": options(0.6), "b": options(0.5)}, "0"),
        ({"a": options(0.6, devices=[3]), "b": options(0.5, devices=[3])}, "3"),
        ({"a": options(0.6, tensor_parallel=4), "b": options(0.5, devices=[2])}, "2"),
        ({"a": options(0.6, devices=["GPU-aaaa"]), "b": options(0.5, devices=["GPU-aaaa"])},
         "GPU-aaaa"),
    ],
)  # fmt: skip
def test_models_that_claim_too_much_are_named_with_figures(models, device):
    ((name, reason),) = conflicts(**models)
    assert name == "a"
    assert f"the models on GPU {device} claim 1.1 of its memory" in reason
    assert "a takes 0.6" in reason
    assert "b takes 0.5" in reason


def test_one_line_for_the_same_models_on_several_gpus_and_one_for_each_other_group():
    found = conflicts(
        a=options(tensor_parallel=4), b=options(tensor_parallel=2), c=options(devices=[3])
    )
    assert [name for name, _ in found] == ["a", "a"]
    assert "on GPU 0" in found[0][1]
    assert "on GPU 3" in found[1][1]


def test_a_model_without_devices_is_said_to_use_the_first_ones():
    ((_, reason),) = conflicts(a=options(), b=options(devices=[0]))
    assert "a takes 0.9 (without devices, it uses the first GPUs), b takes 0.9." in reason
