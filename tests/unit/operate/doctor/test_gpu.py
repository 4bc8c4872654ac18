"""doctor --gpu: TensorRT-LLM as it is known, and the GPUs that models name against nvidia-smi."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from build_engines.gpu.device import ListedGpu
from build_engines.gpu.options import GpuOptions
from build_engines.triton_models import TEMPLATES
from build_engines.upstream.signatures import Signatures
from proxy.operate.doctor import gpu
from proxy.settings import Settings

KNOWN = Signatures.read()
WHOLE = {target: KNOWN.known.get(target, names) for target, names in KNOWN.used.items()}
CONFIG = Path("/app/config.pbtxt")


def test_without_the_package_it_says_so():
    check = gpu.package(None, KNOWN.version)
    assert not check.ok
    assert check.detail == "tensorrt_llm is not installed"
    assert "trtllm-python-py3" in check.remedy


def test_the_known_one_is_well():
    assert gpu.package("1.2.1", KNOWN.version).ok
    checks = gpu.signatures(KNOWN, WHOLE)
    assert len(checks) == len(KNOWN.used)
    assert all(check.ok for check in checks)
    config = (TEMPLATES / "tensorrt_llm" / "config.pbtxt").read_text()
    assert gpu.cpp_backend(config, CONFIG).ok


def test_another_ones_differences_are_told_and_only_those_that_break_it_fail():
    target = "tensorrt_llm:LLM.generate_async"
    changed = WHOLE[target] - {"streaming", "cache_salt"} | {"speed"}
    (broken,) = [c for c in gpu.signatures(KNOWN, {**WHOLE, target: changed}) if not c.ok]
    assert broken.name == "tensorrt_llm.LLM.generate_async"
    assert broken.detail == (
        "has no 'streaming'; has no 'cache_salt' any more; has 'speed', which is new"
    )
    harmless = gpu.signatures(KNOWN, {**WHOLE, target: WHOLE[target] | {"speed"}})
    assert all(check.ok for check in harmless)
    assert any("speed" in check.detail for check in harmless)


MULTI_BLOCK, OVERLAP = 'key: "multi_block_mode"', 'key: "enable_trt_overlap"'


@pytest.mark.parametrize(
    ("before", "after", "is_ok", "detail"),
    [
        # As enable_trt_overlap did, which is in some versions' template and not in others'.
        (
            MULTI_BLOCK,
            OVERLAP,
            True,
            "parameter enable_trt_overlap is new; parameter multi_block_mode is gone",
        ),
        ('"stop"', '"halt"', False, "input stop is gone"),
        ("TYPE_UINT64", "TYPE_INT64", False, ""),
    ],
)
def test_a_cpp_backend_that_differs_fails_unless_a_parameter_came_or_went(
    before, after, is_ok, detail
):
    config = (TEMPLATES / "tensorrt_llm" / "config.pbtxt").read_text()
    check = gpu.cpp_backend(config.replace(before, after), CONFIG)
    assert check.ok is is_ok
    assert detail in check.detail


def test_a_cpp_backend_that_is_absent_is_said():
    absent = gpu.cpp_backend(None, CONFIG)
    assert absent.ok
    assert str(CONFIG) in absent.detail


LISTED = [
    ListedGpu(index=0, name="NVIDIA H100", uuid="GPU-aaaa-01"),
    ListedGpu(index=1, name="NVIDIA H100", uuid="GPU-aabb-02"),
    ListedGpu(index=1, name="MIG 1g.10gb", uuid="MIG-cccc-03"),
    ListedGpu(index=2, name="NVIDIA L4", uuid="GPU-eeee-04"),
    ListedGpu(index=3, name="NVIDIA L4", uuid="GPU-eeee-05"),
]


def options(fraction: float = 0.4, **given: object) -> GpuOptions:
    return GpuOptions.model_validate({"kv_cache": {"fraction": fraction}, **given})


def failed(**models: GpuOptions) -> list[str]:
    return [check.detail for check in gpu.devices(models, LISTED) if not check.ok]


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ({}, "0 (NVIDIA H100)"),
        ({"tensor_parallel": 2}, "0 (NVIDIA H100), 1 (NVIDIA H100)"),
        ({"devices": [1]}, "1 (NVIDIA H100)"),
        ({"devices": ["GPU-aabb"]}, "GPU-aabb (NVIDIA H100)"),  # CUDA takes an unique beginning
        ({"devices": ["MIG-cccc-03"]}, "MIG-cccc-03 (MIG 1g.10gb)"),
    ],
)
def test_gpus_that_are_here_are_listed_with_their_names(given, detail):
    (check,) = gpu.devices({"m": options(**given)}, LISTED)
    assert (check.name, check.ok, check.detail) == ("GPUs of m", True, detail)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"devices": [4]}, "GPU 4 is not here; nvidia-smi lists 0 (NVIDIA H100), 1 (NVIDIA H100)"),
        ({"tensor_parallel": 6}, "GPU 4, 5 is not here"),
        ({"devices": ["GPU-dddd"]}, "GPU GPU-dddd is not here"),
        ({"devices": ["GPU-aa00"]}, "GPU GPU-aa00 is not here"),
        ({"devices": ["GPU-eeee"]}, "GPU GPU-eeee is not here"),  # two GPUs begin so
    ],
)
def test_gpus_that_are_not_here_are_named(given, missing):
    (detail,) = failed(m=options(**given))
    assert detail.startswith(missing)


def test_one_gpu_under_two_names_is_found():
    """models.yaml alone cannot tell that an index and a UUID are the same GPU."""
    by_index, by_uuid = options(0.6, devices=[1]), options(0.5, devices=["GPU-aabb-02"])
    (detail,) = failed(a=by_index, b=by_uuid)
    assert "the models on GPU 1 claim 1.1 of its memory" in detail
    assert not failed(a=by_index, b=options(0.5, devices=["GPU-aaaa-01"]))


def test_a_machine_without_nvidia_smi_fails_the_check():
    (check,) = gpu.devices({"m": options()}, None)
    assert (check.ok, check.detail) == (False, "nvidia-smi is not on PATH")


def settings(folder: Path, text: str | None) -> Settings:
    if text is not None:
        (folder / "models.yaml").write_text(text)
    return Settings(models_file=folder / "models.yaml", artifacts_dir=folder)


@pytest.mark.parametrize("text", [None, "models: {small: {weights: w}}"])
def test_without_models_on_gpus_there_is_nothing_to_check(tmp_path, text):
    assert gpu.of_models(settings(tmp_path, text)) == []


def test_the_models_file_is_read_and_nvidia_smi_is_run(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: NVIDIA L4 (UUID: GPU-aaaa-01)"\n')
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    text = "models: {m: {weights: w, runtime: tensorrt_llm, gpu: {devices: [%d]}}}"
    (here,) = gpu.of_models(settings(tmp_path, text % 0))
    assert (here.ok, here.detail) == (True, "0 (NVIDIA L4)")
    (missing,) = gpu.of_models(settings(tmp_path, text % 1))
    assert not missing.ok


def test_a_models_file_that_cannot_be_read_and_an_nvidia_smi_that_fails_are_reported(
    tmp_path, monkeypatch
):
    (check,) = gpu.of_models(settings(tmp_path, "models: {}"))
    assert not check.ok
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nexit 9\n")
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    text = "models: {m: {weights: w, runtime: tensorrt_llm}}"
    (check,) = gpu.of_models(settings(tmp_path, text))
    assert "nvidia-smi failed" in check.detail
