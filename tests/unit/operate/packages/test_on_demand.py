"""on_demand: packages that are installed when something first needs them."""

from __future__ import annotations

import re
import sys
import sysconfig
from importlib import util
from pathlib import Path

import pytest

from proxy.operate.packages import on_demand
from proxy.operate.packages.on_demand import GUIDES, PackageSet, Source
from proxy.processes.errors import LaunchError
from proxy.settings import Settings
from tests.fixtures.stack import ROOT

CPU_INDEX = "https://index.example/cpu"
MISSING = PackageSet(
    name="nothing",
    size="1 MB",
    sources=(Source(name="no-such-package==1.0", provides=("no-such-package",)),),
)


PRESENT = Source(name="pytest==0.0", provides=("pytest",))


@pytest.fixture
def settings() -> Settings:
    return Settings(torch_index_url=CPU_INDEX)


def test_what_is_installed_is_left_alone(settings):
    said: list[str] = []
    there = PackageSet(name="pytest", size="1 MB", sources=(PRESENT,))
    on_demand.ensure(there, "a test", settings, said.append)
    assert said == []


def test_it_can_be_forbidden_and_the_error_says_what_to_run(settings):
    forbidden = settings.model_copy(update={"install_packages": "never"})
    with pytest.raises(LaunchError, match="the build of m needs nothing") as refused:
        on_demand.ensure(MISSING, "the build of m", forbidden, print)
    command = f"run {sys.executable} -m pip install --disable-pip-version-check --no-deps"
    assert str(refused.value).endswith(f"{command} no-such-package==1.0")


def test_an_installation_that_fails_says_what_to_run(settings, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    said: list[str] = []
    with pytest.raises(LaunchError, match="could not be installed: pip ended with exit status 1"):
        on_demand.ensure(MISSING, "a test", settings, said.append)
    assert said[0] == f"a test needs nothing (1 MB): installing into {sys.prefix}"
    assert said[1].startswith("step 1/1: installing no-such-package==1.0")


def test_an_environment_of_somebody_else_is_not_written_to(settings, monkeypatch, tmp_path):
    theirs = tmp_path / "no-such-folder"
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(theirs))
    with pytest.raises(LaunchError, match=f"{theirs} is not yours to write"):
        on_demand.install(MISSING, settings, print)


def test_an_environment_without_pip_is_named(settings, monkeypatch):
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "pip" else find(name))
    with pytest.raises(LaunchError, match=f"{sys.prefix} has no pip"):
        on_demand.install(MISSING, settings, print)


def test_the_build_tools_are_torch_from_its_own_index_and_the_lock():
    torch, others = (" ".join(s.command(CPU_INDEX)) for s in on_demand.build_tools().sources)
    assert torch.endswith("requirements-torch.txt --index-url https://index.example/cpu")
    assert "--no-deps -r" in others
    assert others.endswith("requirements-build.lock")
    for command in (torch, others):
        assert Path(re.search(r"-r (\S+)", command)[1]).is_file()


def test_the_build_tools_are_looked_for_by_packages_of_their_lock():
    lock = (ROOT / "build_engines/requirements-build.lock").read_text()
    _, others = on_demand.build_tools().sources
    for package in others.provides:
        assert f"\n{package}==" in lock


def test_what_is_there_in_any_version_is_not_replaced(settings):
    both = PackageSet(name="both", size="1 MB", sources=(PRESENT, *MISSING.sources))
    assert "pytest" not in both.by_hand(settings)
    assert both.by_hand(settings).endswith("no-such-package==1.0")


def test_xgrammar_is_that_of_the_lock():
    (source,) = GUIDES.sources
    assert f"\n{source.name} \\\n" in (ROOT / "requirements.lock").read_text()
    assert "--no-deps" in source.command(None)
