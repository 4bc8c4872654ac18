"""device: what is known of the GPU, and who says it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from build_engines.errors import BuildError
from build_engines.gpu import device
from build_engines.gpu.device import Device
from build_engines.gpu.options import GpuOptions
from tests.fixtures.stack import ROOT


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts an nvidia-smi on PATH that prints these lines, or fails."""

    def put(lines: str, status: int = 0) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\nexit {status}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def test_models_yaml_comes_first_and_nvidia_smi_says_the_rest(nvidia_smi):
    nvidia_smi("81559, 9.0\n81559, 9.0")
    assert Device.of(GpuOptions()).architecture == "hopper"
    assert Device.of(GpuOptions()).memory_gb == pytest.approx(85.5, abs=0.1)
    assert Device.of(GpuOptions(memory_gb=40)) == Device(memory_gb=40, architecture="hopper")


def test_the_smallest_of_different_gpus_counts(nvidia_smi):
    nvidia_smi("81559, 9.0\n24564, 8.9")
    assert device.installed().architecture == "ada"


def test_only_the_named_gpus_count(tmp_path, monkeypatch):
    """nvidia-smi's own --id takes indices and UUIDs."""
    path = tmp_path / "nvidia-smi"
    path.write_text('#!/bin/sh\n[ "$1" = --id=2,3 ] && echo "81559, 9.0" || echo "24564, 8.9"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    named = GpuOptions.model_validate({"tensor_parallel": 2, "devices": [2, 3]})
    assert Device.of(named).architecture == "hopper"
    assert Device.of(GpuOptions()).architecture == "ada"


def test_gpus_and_their_mig_instances_are_listed(nvidia_smi):
    nvidia_smi(
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa-01)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-bbbb-02)\n"
        "GPU 1: NVIDIA L4 (UUID: GPU-cccc-03)"
    )
    found = device.listed()
    assert [(gpu.index, gpu.uuid) for gpu in found] == [
        (0, "GPU-aaaa-01"), (0, "MIG-bbbb-02"), (1, "GPU-cccc-03"),
    ]  # fmt: skip
    assert (found[0].name, found[2].name) == ("NVIDIA H100 80GB HBM3", "NVIDIA L4")
    assert found[1].name.startswith("MIG 3g.40gb")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler, which makes the stand-in")
def test_the_drivers_library_says_which_cuda_it_supports(tmp_path):
    source = "int cuDriverGetVersion(int *v) { *v = 13010; return 0; }"
    library = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", tmp_path / "libcuda.so.1"]
    subprocess.run(library, input=source, text=True, check=True)
    code = "from build_engines.gpu import device; print(device.cuda_version())"
    for folder, told in ((tmp_path, "(13, 1)"), ("/nowhere", str(device.cuda_version()))):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True
        )
        assert found.stdout.strip() == told, found.stderr


def test_without_nvidia_smi_nothing_is_known(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert Device.of(GpuOptions()) == Device()
    assert device.listed() is None


def test_an_nvidia_smi_that_fails_is_an_error(nvidia_smi):
    nvidia_smi("no driver", status=9)
    with pytest.raises(BuildError, match=r"nvidia-smi failed: .* non-zero exit status 9"):
        device.installed()


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ("8.0", "ampere"),
        ("8.6", "ampere"),
        ("8.9", "ada"),
        ("9.0", "hopper"),
        ("12.0", "blackwell"),
    ],
)
def test_compute_capabilities(capability, architecture):
    assert device.architecture(capability) == architecture


def test_a_gpu_that_is_too_old_is_named():
    with pytest.raises(BuildError, match=r"compute capability 7\.5: TensorRT-LLM needs 8\.0"):
        device.architecture("7.5")
