"""A stand-in of NVIDIA's image: its Python, and the recorded versions of what our code touches.

Two environments, as docker/install.py makes them: `image`, with whose python3 tritonserver runs its
models, and `ours`, for `triton-openai`. Packages that our code does not import are only declared;
torch is a module of names, and tensorrt_llm the tests' stand-in. 1 GB, kept between runs.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proxy.operate.triton_server import binaries
from tests.deploy.places import DOCKER, ROOT
from tests.deploy.test_install import RECORDED, VLLM, describe, pins, with_python
from tests.fixtures.running import ARTIFACTS
from tests.fixtures.stack import HANG_S

RECORDS = {"TensorRT-LLM": RECORDED, "vLLM": VLLM}
PYTHON = "3.12"
# What our code imports in the image beside our own requirements, or transformers imports for it.
TOUCHED = ("xgrammar", "transformers", "safetensors", "huggingface-hub", "numpy", "jinja2",
           "sentencepiece", "tiktoken", "protobuf")  # fmt: skip
DECLARED = ("torch", "triton")  # 3 GB, and a build without quantization runs none of it
# Both images install `numpy<2` for Triton's models, and then cupy, which wants numpy 2. The tests'
# tritonserver 2.51 misreads texts of numpy 2; the recorded one is in a folder of its own.
NUMPY = "numpy==1.26.4"
# The tests of our own that run in the image need these.
TESTS = ("pytest", "pluggy", "iniconfig", "pytest-timeout", "pytest-xdist", "execnet",
         "hypothesis", "sortedcontainers")  # fmt: skip
TORCH = '''\
"""Has a class of any name: what xgrammar's import wants of torch. transformers does without."""

__version__ = "0.0"


class cuda:
    is_available = staticmethod(lambda: False)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"__init__": lambda *_, **__: None})
'''
SERVER = """\
#!/bin/sh
export LD_LIBRARY_PATH={libraries}
exec {server} --backend-directory={backends} --allow-gpu-metrics=false "$@"
"""


class Unavailable(Exception):
    """This machine cannot have the environment; the text says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """folder: of the environments, of `bin` with a tritonserver, and of further packages."""

    folder: Path
    packages: dict[str, Any]

    @property
    def ours(self) -> Path:
        return self.folder / "ours" / "bin" / "python3"

    @property
    def theirs(self) -> Path:
        return self.folder / "image" / "bin" / "python3"

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """By our Python in the image, with these variables and none of this process."""
        return subprocess.run(
            [self.ours, *command], env=self.environment(**variables), cwd=ROOT,
            capture_output=True, text=True, timeout=HANG_S,
        )  # fmt: skip

    def environment(self, **variables: str) -> dict[str, str]:
        path = f"{self.folder}/bin:{self.folder}/image/bin:/usr/bin:/bin"
        return {"HOME": os.environ["HOME"], "PATH": path, **variables}


def made(name: str) -> Image:
    """Raises Unavailable."""
    packages = RECORDS[name]["packages"]
    image = Image(ARTIFACTS / "images" / name.lower(), packages)
    stamp = "\n".join([*_touched(packages), NUMPY, TORCH, SERVER, Path(__file__).read_text()])
    image.folder.mkdir(parents=True, exist_ok=True)
    with (image.folder.parent / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = image.folder / "done"
        if not done.exists() or done.read_text() != stamp:
            shutil.rmtree(image.folder)
            _make(image)
            done.write_text(stamp)
    return image


def _make(image: Image) -> None:
    python = with_python(PYTHON)
    if f"Python {PYTHON}" not in _run(python, "--version"):
        raise Unavailable(f"the image has Python {PYTHON}, which this machine lacks")
    _run(python, "-m", "venv", image.folder / "image")
    pip = (image.theirs, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile")
    wanted = _touched(image.packages)
    numpy = next(pin for pin in wanted if pin.startswith("numpy=="))
    _run(*pip, *(NUMPY if pin == numpy else pin for pin in wanted))
    _run(*pip, "--target", image.folder / "recorded_numpy", numpy)
    _run(*pip, "--target", image.folder / "tests", *_of_tests())
    [site] = (image.folder / "image").glob("lib/python*/site-packages")
    here = {pin.partition("==")[0] for pin in wanted}
    declared = {name: one for name, one in image.packages.items() if name not in here}
    describe(site, declared)
    _run(image.theirs, DOCKER / "install.py", "beside", image.folder / "ours", "gpu")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text(TORCH)
    shutil.rmtree(next(site.glob("torch-*.dist-info")))  # transformers would import more of it
    if "tensorrt-llm" in declared:
        stand_in = ROOT / "tests" / "doubles" / "packages" / "tensorrt_llm"
        shutil.copytree(stand_in, site / "tensorrt_llm")
    _tritonserver(image)


def _touched(packages: dict[str, Any]) -> list[str]:
    """Pins of the recorded packages that our code, or what it imports, needs in the image."""
    waiting = [*TOUCHED, *(name for pin in pins("proxy") if (name := _name(pin)) in packages)]
    found: dict[str, str] = {}
    while waiting:
        name = _name(waiting.pop())
        if name in packages and name not in found and name not in DECLARED:
            version, *requires = packages[name]
            found[name] = f"{name}=={version}"
            waiting += requires
    return sorted(found.values())


def _of_tests() -> list[str]:
    lines = (ROOT / "requirements-dev.lock").read_text().splitlines()
    found = [re.split(r"[ ;]", line)[0] for line in lines if re.match(r"[\w.-]+==", line)]
    return [pin for pin in found if _name(pin) in TESTS]


def _name(requirement: str) -> str:
    return str(canonicalize_name(Requirement(requirement).name))


def _tritonserver(image: Image) -> None:
    """The wheel's, at the head of PATH as in the image, with the stub for the image's Python."""
    wheel = binaries.Wheel(site_packages=binaries.wheel().site_packages, python=PYTHON)
    backends = image.folder / "backends"
    shutil.copytree(wheel.python_backend, backends / "python")
    shutil.copy2(wheel.stub, backends / "python")
    library = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"
    libraries = f"{wheel.libraries}:{_run(image.theirs, '-c', library).strip()}"
    script = image.folder / "bin" / "tritonserver"
    script.parent.mkdir()
    script.write_text(
        SERVER.format(libraries=libraries, server=wheel.tritonserver, backends=backends)
    )
    script.chmod(0o755)


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if "NewConnectionError" in done.stderr:
        raise Unavailable("pip reaches no package index")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
