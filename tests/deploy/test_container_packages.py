"""Our requirements against the packages of NVIDIA's container, as far as public sources name them.

container_packages.json records the sources. docker/install.py installs into a venv beside the
container's packages and replaces none of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.deploy.places import DOCKER, ROOT
from tests.deploy.test_install import install

RECORDED = json.loads((Path(__file__).parent / "container_packages.json").read_text())
REQUIRED = install.dependencies((ROOT / "pyproject.toml").read_text(), "gpu")


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


def test_every_requirement_fits_the_container():
    assert not conflicts(REQUIRED)


@pytest.mark.parametrize(
    ("requirement", "is_conflict"),
    [
        ("transformers>=5", True),
        ("huggingface-hub>=1", True),
        ("fastapi>=0.122", True),
        ("xgrammar==0.2.8", True),
        ("xgrammar==0.1.25", True),  # the release that the image holds requires 0.1.32
        ("numpy>=2", True),
        ("transformers>=4.57", False),
        ("fastapi>=0.115", False),
        ("prometheus-client>=0.21", False),
        ("packaging>=24", False),
        ("a-package-that-the-container-lacks>=9", False),
    ],
)
def test_a_requirement_that_does_not_fit_would_be_found(requirement, is_conflict):
    assert bool(conflicts([requirement])) is is_conflict


def test_most_requirements_can_be_checked():
    """A source that loses its packages would make this file pass with nothing to check."""
    known = {name for source in RECORDED["sources"] for name in source["packages"]}
    ours = {canonicalize_name(Requirement(line).name) for line in REQUIRED}
    assert len(ours & known) >= 12, sorted(ours & known)


def test_the_sources_are_dated_and_belong_to_the_image():
    tag = RECORDED["image"].rpartition(":")[2]
    assert f"ARG TRITON_TAG={tag}\n" in (DOCKER / "triton.Dockerfile").read_text()
    for source in RECORDED["sources"]:
        assert re.fullmatch(r"20\d\d-\d\d", source["about"])
        assert source["commit"]
        assert source["marker"]
