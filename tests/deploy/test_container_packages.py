"""Our requirements against the packages of NVIDIA's container, as far as public sources name them.

container_packages.json records the sources. docker/install.py installs into a venv beside the
container's packages and replaces none of them.
"""

from __future__ import annotations

import json
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.deploy.places import ROOT
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
