"""doctor --gpu: TensorRT-LLM as it is known, and the GPUs that models name against nvidia-smi."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from packaging.version import Version

from build_engines.gpu.device import ListedGpu
from build_engines.gpu.options import GpuOptions
from build_engines.triton_models import TEMPLATES
from build_engines.upstream.signatures import Signatures
from proxy.operate.doctor import gpu
from proxy.settings import Settings

KNOWN = Signatures.read()
WHOLE = {target: KNOWN.known.get(target, names) for target, names in KNOWN.used.items()}
CONFIG = Path("/app/config.pbtxt")


@pytest.mark.parametrize(("version", "record"), [("1.2.1", "1.2.1"), ("1.4.0rc1", "1.3.0rc25")])
def test_the_installed_version_is_compared_with_its_own_record(monkeypatch, version, record):
    monkeypatch.setattr(Signatures, "found", lambda known: {**known.used, **known.known})
    found = gpu.installed_signatures(version)
    assert {check.detail for check in found} == {f"as in {record}"}
    assert gpu.package(version).detail == f"tensorrt_llm {version} (known: 1.2.1, 1.3.0rc25)"


def test_another_ones_differences_are_told_and_only_those_that_break_it_fail():
    target = "tensorrt_llm:LLM.generate_async"
    changed = WHOLE[target] - {"streaming", "cache_salt"} | {"speed"}
    (broken,) = [c for c in gpu.signatures(KNOWN, {**WHOLE, target: changed}) if not c.ok]
    assert broken.name == "tensorrt_llm.LLM.generate_async"
    assert broken.detail == (
        "has no 'streaming'; has no 'cache_salt' any more; has 'speed', which is new"
    )
    assert len(gpu.signatures(KNOWN, WHOLE)) == len(KNOWN.used)
    assert all(check.ok for check in gpu.signatures(KNOWN, WHOLE))
    harmless = gpu.signatures(KNOWN, {**WHOLE, target: WHOLE[target] | {"speed"}})
    assert all(check.ok for check in harmless)
    assert any("speed" in check.detail for check in harmless)


@pytest.mark.parametrize(("version", "is_ok"), [("0.27.1+b1.nv26.8", True), ("0.26.0", False)])
def test_with_vllm_in_tensorrt_llms_place_that_is_checked(monkeypatch, tmp_path, version, is_ok):
    monkeypatch.setattr(gpu.arguments, "installed", lambda: Version(version))
    monkeypatch.setattr(gpu.device, "listed", lambda: [ListedGpu(index=0, name="a", uuid="GPU-1")])
    models = tmp_path / "models.yaml"
    entry = "{runtime: vllm, weights: /w, vllm: {tensor_parallel: 2}}"
    models.write_text(f"models: {{m: {entry}}}")
    package, driver, *_, of_model = gpu.everything(Settings(models_file=models))
    assert (package.name, package.ok) == ("vLLM", is_ok)
    assert "made for driver 615.61" in driver.detail
    assert of_model.detail == "GPU 1 is not here; nvidia-smi lists 0 (a)"


@pytest.mark.parametrize(
    ("cuda", "is_ok", "told"),
    [
        (None, False, "no NVIDIA driver here (libcuda.so.1); NVIDIA's container 26.07 has 13.1"),
        ((12, 9), False, "the driver supports CUDA 12.9; NVIDIA's container 26.07 has 13.1"),
        ((13, 0), True, "the driver supports CUDA 13.0; NVIDIA's container 26.07 has 13.1"),
        ((13, 1), True, "the driver supports CUDA 13.1"),
        ((14, 0), True, "the driver supports CUDA 14.0"),
    ],
)
def test_the_drivers_cuda_is_compared_with_what_the_container_needs(cuda, is_ok, told):
    check = gpu.driver(cuda)
    assert check.ok is is_ok
    assert check.detail.startswith(told)
    assert "was made for driver 590.44.01" in check.detail
    assert ("update the driver" in check.detail) is (cuda == (13, 0))


def test_compilers_that_are_missing_are_named_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    for name in ("ninja", "cuda/bin/nvcc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    found = {check.name: check for check in gpu.compilers()}
    assert {name: check.ok for name, check in found.items()} == {
        "nvcc": True, "ninja": True, "C++ compiler": False,
    }  # fmt: skip
    assert "apt-get install g++" in found["C++ compiler"].remedy


def test_folders_for_kernels_must_be_writable_and_run_what_is_in_them(tmp_path):
    folders = {name: str(tmp_path / name) for name in gpu.CACHES}
    assert all(check.ok for check in gpu.caches({"HOME": str(tmp_path), **folders}))
    file = tmp_path / "file"
    file.write_text("")
    wrong = gpu.caches({"HOME": str(tmp_path), **folders, "TRITON_CACHE_DIR": str(file / "x")})
    (failed,) = [check for check in wrong if not check.ok]
    assert failed.detail.startswith(f"{file / 'x'}: ")
    assert f"mount {file} writable for this user and with `exec`" in failed.remedy
    assert not [path for path in tmp_path.iterdir() if path != file], "nothing is left"


MULTI_BLOCK, OVERLAP = 'key: "multi_block_mode"', 'key: "enable_trt_overlap"'


@pytest.mark.parametrize(
    ("before", "after", "is_ok", "detail"),
    [
        (MULTI_BLOCK, MULTI_BLOCK, True, ""),
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


def test_the_models_file_is_read_and_nvidia_smi_is_run(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: NVIDIA L4 (UUID: GPU-aaaa-01)"\n')
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    file = tmp_path / "models.yaml"
    for device, is_ok in ((0, True), (1, False)):
        gpus = f"{{runtime: tensorrt_llm, weights: w, gpu: {{devices: [{device}]}}}}"
        file.write_text(f"models: {{m: {gpus}}}")
        (check,) = gpu.of_models(Settings(models_file=file, artifacts_dir=tmp_path))
        assert check.ok is is_ok
        assert not is_ok or check.detail == "0 (NVIDIA L4)"
