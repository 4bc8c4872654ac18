"""What the wheel holds, and that the sdist makes the same one."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path, PurePosixPath

import pytest
import yaml

from tests.fixtures.demo_folder import BUILT, TRAINED
from tests.fixtures.stack import ROOT
from tests.long.wheel.conftest import build


@pytest.fixture(scope="module")
def files(wheel: Path) -> set[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if not re.match(r"triton_openai-[\d.]+\.dist-info/", name)}


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


def test_it_installs_four_packages_by_the_names_of_their_folders(files: set[str]) -> None:
    roots = {name.partition("/")[0] for name in files}
    assert roots == {"proxy", "build_engines", "model_repository", "demo_model"}


def test_the_demo_model_and_the_locks_of_builds_are_in_it(files: set[str]) -> None:
    assert {f"demo_model/shipped/{name}" for name in TRAINED | BUILT} <= files
    assert {"demo_model/models.yaml", "proxy/py.typed", "build_engines/py.typed"} <= files
    locks = ("requirements-build.lock", "requirements-torch.txt", "requirements-quantization.lock")
    assert {f"build_engines/{name}" for name in locks} <= files


def test_the_shipped_models_file_serves_the_demo_as_that_of_a_clone_does() -> None:
    ours, cloned = (
        yaml.safe_load((ROOT / folder / "models.yaml").read_text())["models"]["demo"]
        for folder in ("demo_model", ".")
    )
    assert ours == cloned | {"weights": "shipped"}


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
