"""shipped_demo: what is served in a folder without models.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from build_engines.models_file import load
from proxy.operate.triton_server import shipped_demo
from proxy.settings import Settings
from tests.fixtures.stack import ROOT


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> Path:
    """An empty working directory; the user's data folder is data/."""
    for name in ("ARTIFACTS_DIR", "MODELS_FILE", "MODEL_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_empty_folder_serves_the_demo_from_the_users_data_folder(elsewhere):
    found = shipped_demo.settled(Settings())
    (demo,) = load(found.models_file).models.values()
    assert demo.weights.path == ROOT / "demo_model" / "shipped"
    assert found.artifacts_dir == elsewhere / "data" / "triton-openai" / "artifacts"
    assert "artifacts_dir" in found.model_fields_set, "the store is there, too"


def test_a_models_file_of_the_folder_is_built_there(elsewhere):
    (elsewhere / "models.yaml").touch()
    assert shipped_demo.settled(Settings()) == Settings()


def test_one_model_folder_is_built_in_the_users_data_folder(elsewhere):
    found = shipped_demo.settled(Settings(model_path=elsewhere))
    assert "models_file" not in found.model_fields_set
    assert found.artifacts_dir == elsewhere / "data" / "triton-openai" / "artifacts"


def test_an_artifacts_folder_that_is_there_is_kept(elsewhere):
    (elsewhere / "artifacts").mkdir()
    assert shipped_demo.settled(Settings()).artifacts_dir == Path("artifacts")


def test_what_is_named_is_never_replaced(elsewhere):
    named = Settings(models_file=Path("no.yaml"), artifacts_dir=Path("there"))
    assert shipped_demo.settled(named) == named
