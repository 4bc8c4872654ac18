"""folders: the demo in a folder without models.yaml, and a build folder of one's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from build_engines.build import build_all
from build_engines.models_file import load
from proxy.operate.triton_server import folders
from proxy.settings import Settings
from tests.fixtures.scripted import scripted
from tests.fixtures.stack import ROOT


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Path:
    """An empty working directory; the user's data folder is data/."""
    for name in ("ARTIFACTS_DIR", "MODELS_FILE", "MODEL_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_empty_folder_serves_the_demo_from_the_users_data_folder(elsewhere):
    found = folders.with_shipped_demo(Settings())
    demo, embedding = load(found.models_file).models.values()
    assert embedding.weights.name == "wordllama"
    assert demo.weights.path == ROOT / "demo_model" / "shipped"
    assert found.artifacts_dir == elsewhere / "data" / "triton-openai" / "artifacts"
    assert "artifacts_dir" in found.model_fields_set, "the store is there, too"


def test_one_model_folder_is_built_in_the_users_data_folder(elsewhere):
    found = folders.with_shipped_demo(Settings(model_path=elsewhere))
    assert "models_file" not in found.model_fields_set
    assert found.artifacts_dir == elsewhere / "data" / "triton-openai" / "artifacts"


def test_an_artifacts_folder_that_is_there_is_kept(elsewhere):
    (elsewhere / "artifacts").mkdir()
    assert folders.with_shipped_demo(Settings()).artifacts_dir == Path("artifacts")


NOBODY = 65534
WRITE = 0o222


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models.yaml, and artifacts/ with its model built."""
    folder = tmp_path_factory.mktemp("built")
    weights = folder / "weights"
    shutil.copytree(ROOT / "demo_model" / "shipped", weights)
    entry = {**scripted("Hello"), "weights": "weights"}
    (folder / "models.yaml").write_text(yaml.safe_dump({"models": {"m": entry}}))
    build_all(load(folder / "models.yaml"), folder / "artifacts", say=lambda line: None)
    return folder


@pytest.fixture
def clone(built: Path) -> Iterator[Path]:
    """A copy that everybody may read."""
    top = Path(tempfile.mkdtemp())
    top.chmod(0o755)
    folder = shutil.copytree(built, top / "clone", symlinks=True)
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(top)


def as_another(clone: Path, *command: str, home: Path, **more: str) -> subprocess.CompletedProcess:
    """A command in the clone, by a user who may only read it.

    Root writes everywhere by a capability, so it gives that up.
    """
    prefix = []
    if os.geteuid() == 0:
        prefix = ["setpriv", "--bounding-set", "-dac_override", "--"]
        for path in (clone, *clone.rglob("*")):
            os.lchown(path, NOBODY, NOBODY)
    else:
        for path in (clone, *clone.rglob("*")):
            path.chmod(path.stat().st_mode & ~WRITE)
    variables = {name: value for name, value in os.environ.items() if name != "ARTIFACTS_DIR"}
    return subprocess.run(
        [*prefix, sys.executable, "-m", "proxy.cli", *command],
        cwd=clone,
        env={**variables, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(home), **more},
        capture_output=True,
        text=True,
    )


def test_what_another_user_has_built_is_taken_as_it_is(clone, tmp_path):
    done = as_another(clone, "build", home=tmp_path)
    assert done.returncode == 0, done.stderr
    (own,) = (tmp_path / "triton-openai").iterdir()
    told = f"[build] {clone.resolve() / 'artifacts'} is not writable for you: using {own}"
    assert done.stdout.splitlines() == [f"{told}; taken from there: m"]
    assert (own / "m").resolve() == (clone / "artifacts" / "m").resolve()
    assert (own / "model_repository" / "m" / "config.pbtxt").is_file()
    shown = as_another(clone, "models", home=tmp_path)
    assert "yes" in shown.stdout
    assert as_another(clone, "build", home=tmp_path).stdout == done.stdout


def test_a_folder_that_was_named_is_not_replaced(clone, tmp_path):
    artifacts = str(clone / "artifacts")
    done = as_another(clone, "build", home=tmp_path, ARTIFACTS_DIR=artifacts)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write ")
    assert not list(tmp_path.iterdir())
