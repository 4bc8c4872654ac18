"""gpu_devices: the GPUs that models name, against those that nvidia-smi lists."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from build_engines.gpu.device import ListedGpu
from build_engines.gpu.options import GpuOptions
from proxy.operate.doctor import gpu_devices
from proxy.settings import Settings

LISTED = [
    ListedGpu(index=0, name="NVIDIA H100", uuid="GPU-aaaa-01"),
    ListedGpu(index=1, name="NVIDIA H100", uuid="GPU-aabb-02"),
    ListedGpu(index=1, name="MIG 1g.10gb", uuid="MIG-cccc-03"),
]


def options(fraction: float = 0.4, **given: object) -> GpuOptions:
    return GpuOptions.model_validate({"kv_cache": {"fraction": fraction}, **given})


def failed(**models: GpuOptions) -> list[str]:
    return [check.detail for check in gpu_devices.of(models, LISTED) if not check.ok]


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
    (check,) = gpu_devices.of({"m": options(**given)}, LISTED)
    assert (check.name, check.ok, check.detail) == ("GPUs of m", True, detail)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"devices": [2]}, "GPU 2 is not here; nvidia-smi lists 0 (NVIDIA H100), 1 (NVIDIA H100)"),
        ({"tensor_parallel": 4}, "GPU 2, 3 is not here"),
        ({"devices": ["GPU-dddd"]}, "GPU GPU-dddd is not here"),
        ({"devices": ["GPU-aa00"]}, "GPU GPU-aa00 is not here"),
    ],
)
def test_gpus_that_are_not_here_are_named(given, missing):
    (detail,) = failed(m=options(**given))
    assert detail.startswith(missing)


def test_an_ambiguous_beginning_of_a_uuid_names_no_gpu():
    twins = [LISTED[0], ListedGpu(index=1, name="NVIDIA H100", uuid="GPU-aaaa-99")]
    (check,) = gpu_devices.of({"m": options(devices=["GPU-aaaa"])}, twins)
    assert not check.ok


def test_one_gpu_under_two_names_is_found():
    """models.yaml alone cannot tell that an index and a UUID are the same GPU."""
    by_index, by_uuid = options(0.6, devices=[1]), options(0.5, devices=["GPU-aabb-02"])
    (detail,) = failed(a=by_index, b=by_uuid)
    assert "the models on GPU 1 claim 1.1 of its memory" in detail
    assert not failed(a=by_index, b=options(0.5, devices=["GPU-aaaa-01"]))


def test_a_machine_without_nvidia_smi_fails_the_check():
    (check,) = gpu_devices.of({"m": options()}, None)
    assert (check.ok, check.detail) == (False, "nvidia-smi is not on PATH")


def settings(folder: Path, text: str | None) -> Settings:
    if text is not None:
        (folder / "models.yaml").write_text(text)
    return Settings(models_file=folder / "models.yaml", artifacts_dir=folder)


@pytest.mark.parametrize("text", [None, "models: {small: {weights: w}}"])
def test_without_models_on_gpus_there_is_nothing_to_check(tmp_path, text):
    assert gpu_devices.of_models(settings(tmp_path, text)) == []


def test_the_models_file_is_read_and_nvidia_smi_is_run(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: NVIDIA L4 (UUID: GPU-aaaa-01)"\n')
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    text = "models: {m: {weights: w, runtime: tensorrt_llm, gpu: {devices: [%d]}}}"
    (here,) = gpu_devices.of_models(settings(tmp_path, text % 0))
    assert (here.ok, here.detail) == (True, "0 (NVIDIA L4)")
    (missing,) = gpu_devices.of_models(settings(tmp_path, text % 1))
    assert not missing.ok


def test_a_models_file_that_cannot_be_read_and_an_nvidia_smi_that_fails_are_reported(
    tmp_path, monkeypatch
):
    (check,) = gpu_devices.of_models(settings(tmp_path, "models: {}"))
    assert not check.ok
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nexit 9\n")
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    text = "models: {m: {weights: w, runtime: tensorrt_llm}}"
    (check,) = gpu_devices.of_models(settings(tmp_path, text))
    assert "nvidia-smi failed" in check.detail
