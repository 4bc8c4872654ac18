"""What the wheel holds, and that the sdist makes the same one."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from tests.fixtures.demo_folder import BUILT, TRAINED
from tests.fixtures.stack import ROOT
from tests.long.wheel.conftest import build

PACKAGE = "triton_openai/"


@pytest.fixture(scope="module")
def files(wheel: Path) -> set[str]:
    """Paths inside the package."""
    names = zipfile.ZipFile(wheel).namelist()
    metadata = [name for name in names if re.match(r"triton_openai-[\d.]+\.dist-info/", name)]
    inside = {name for name in names if name.startswith(PACKAGE)}
    assert {*names} == inside | {*metadata}, "it has one import name"
    return {name.removeprefix(PACKAGE) for name in inside}


def sources(folder: str, *suffixes: str) -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in suffixes
    }


@pytest.mark.parametrize(
    ("folder", "suffixes"),
    [
        ("proxy", (".py", ".html", ".css", ".js", ".gz", ".md")),
        ("build_engines", (".py", ".json", ".jsonl")),
        ("model_repository", (".py", ".pbtxt")),
    ],
)
def test_every_file_of_the_program_is_in_it(files: set[str], folder: str, suffixes) -> None:
    assert sources(folder, *suffixes) <= files


def test_the_demo_model_the_dashboards_and_the_locks_are_in_it(files: set[str]) -> None:
    assert {f"demo_model/shipped/{name}" for name in TRAINED | BUILT} <= files
    assert {"models.yaml", "py.typed", "dashboards/overview.json"} <= files
    assert {"requirements.lock", "requirements-build.lock", "requirements-torch.txt"} <= files
    assert "requirements-quantization.lock" in files


def test_no_tests_no_training_and_no_caches_are_in_it(files: set[str]) -> None:
    parts = {part for name in files for part in PurePosixPath(name).parts}
    assert not parts & {"tests", "training", "__pycache__", "artifacts", "docker", "supply_chain"}
    assert {PurePosixPath(name).suffix for name in files} & {".pyc", ".png"} == set()
    assert "requirements-dev.lock" not in files


def test_it_is_smaller_than_13_mb(wheel: Path) -> None:
    assert wheel.stat().st_size < 13_000_000


def test_the_sdist_makes_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(sdist, tmp_path / "unpacked")
    (tree,) = (tmp_path / "unpacked").iterdir()
    (tmp_path / "made").mkdir()
    ours, theirs = (
        {name: zipfile.ZipFile(one).read(name) for name in zipfile.ZipFile(one).namelist()}
        for one in (wheel, build(tree, "wheel", tmp_path / "made"))
    )
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
