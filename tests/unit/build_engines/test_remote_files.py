"""remote_files: the real clients of the Hub and of S3 against stand-ins, in a process of their own.

Their settings are read when they are imported, so the environment must be there before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.stack import HANG_S
from tests.unit.build_engines import file_servers

ROOT = Path(__file__).parents[3]
PROGRAM = """\
import json, sys, time
from pathlib import Path
time.sleep = lambda seconds: None  # huggingface_hub's, 23 s between its tries
from build_engines import fetch
from build_engines.errors import BuildError
from build_engines.weights import parse
source, artifacts = parse(sys.argv[1], Path()), Path(sys.argv[2])
step = fetch.step(source, artifacts)
try:
    ahead = fetch.config(step)
    if sys.argv[3] == "fetch":
        fetch_said = []
        step.run(fetch_said.append)
        ahead = fetch.config(step)
    told = {"config": ahead, "folder": str(step.folder), "done": step.is_done}
    print(json.dumps({**told, "said": fetch_said if sys.argv[3] == "fetch" else []}))
except BuildError as error:
    print(json.dumps({"error": str(error)}))
"""
Fetch = Callable[..., dict[str, Any]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    folder = tmp_path / "stored"
    for name, text in {
        "config.json": '{"model_type": "llama"}',
        "model.safetensors": "weights",
        "original/consolidated.00.pth": "the same weights once more",
        "deep/config.json": '{"model_type": "qwen2"}',
        "deep/sub/vocab.json": "{}",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with file_servers.serve(folder) as server:
        yield server


@pytest.fixture
def ask(store: Any, tmp_path: Path) -> Fetch:
    """ask(url, "ahead") reads config.json only; ask(url) fetches."""

    def run(source: str, what: str = "fetch") -> dict[str, Any]:
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, source, str(tmp_path / "artifacts"), what],
            env={**os.environ, **file_servers.environment(store.url), "PYTHONPATH": str(ROOT)},
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG_S,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return dict(json.loads(result.stdout.splitlines()[-1]))

    return run


def names(folder: str) -> list[str]:
    root = Path(folder)
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def test_a_repository_is_fetched_once_without_the_copies_of_its_weights(ask, store):
    found = ask("hf://org/name@main")
    assert found["config"] == {"model_type": "llama"}
    assert "original/consolidated.00.pth" not in names(found["folder"])
    assert "model.safetensors" in names(found["folder"])
    store.asked.clear()
    assert ask("hf://org/name@main", "ahead")["done"]
    assert store.asked == []


@pytest.mark.parametrize("source", ["hf://org/name", "hf://org/name@main"])
def test_the_commit_is_logged_and_kept_with_the_weights(ask, source):
    found = ask(source)
    origin = json.loads((Path(found["folder"]) / "fetched_from.json").read_text())
    assert origin == {"source": source, "commit": file_servers.COMMIT}
    assert any(
        file_servers.COMMIT in line and f"hf://org/name@{file_servers.COMMIT}" in line
        for line in found["said"]
    )


def test_every_file_is_asked_for_at_the_commit(ask, store):
    ask("hf://org/name")
    files = [asked for asked in store.asked if "safetensors" in asked]
    assert files
    assert all(f"/{file_servers.COMMIT}/" in asked for asked in files)


def test_an_interrupted_fetch_continues_with_its_commit(ask, store, tmp_path):
    """The branch may have moved meanwhile: files of two commits would not fit each other."""
    half = Path(ask("hf://org/name", "ahead")["folder"] + ".unfinished")
    half.mkdir(parents=True)
    before = "b" * 40
    (half / "fetched_from.json").write_text(json.dumps({"source": "x", "commit": before}))
    ask("hf://org/name")
    asked = [asked for asked in store.asked if "safetensors" in asked]
    assert asked
    assert all(f"/{before}/" in one for one in asked)


def test_the_config_is_read_ahead_of_a_repositorys_weights(ask, store):
    found = ask("hf://org/name", "ahead")
    assert (found["config"], found["done"]) == ({"model_type": "llama"}, False)
    assert not [asked for asked in store.asked if "safetensors" in asked]


def test_a_folder_of_a_bucket_is_fetched_and_goes_on_where_it_was(ask, store, tmp_path):
    found = ask("s3://bucket/deep", "ahead")
    assert found["config"] == {"model_type": "qwen2"}
    half = Path(found["folder"] + ".unfinished")
    (half / "sub").mkdir(parents=True)
    (half / "sub" / "vocab.json").write_text("{}")
    store.asked.clear()
    assert names(ask("s3://bucket/deep")["folder"]) == ["config.json", "sub/vocab.json"]
    assert not [asked for asked in store.asked if "vocab" in asked]


@pytest.mark.parametrize("top", ["llama/", ""])
def test_an_archive_is_unpacked_with_or_without_a_folder_at_its_top(ask, store, top):
    with tarfile.open(store.folder / "llama.tar.gz", "w:gz") as archive:
        archive.add(store.folder / "config.json", f"{top}config.json")
        archive.add(store.folder / "model.safetensors", f"{top}model.safetensors")
    assert ask("s3://bucket/llama.tar.gz", "ahead")["config"] is None
    found = ask("s3://bucket/llama.tar.gz")
    assert names(found["folder"]) == ["config.json", "model.safetensors"]


def test_an_archive_that_would_write_elsewhere_is_refused(ask, store):
    with tarfile.open(store.folder / "bad.tar", "w") as archive:
        archive.add(store.folder / "config.json", "../../config.json")
    assert "cannot be fetched" in ask("s3://bucket/bad.tar")["error"]


def test_what_model_optimizer_says_is_part_of_the_config(ask, store):
    quantized = {"quantization": {"quant_algo": "FP8"}}
    (store.folder / "hf_quant_config.json").write_text(json.dumps(quantized))
    found = ask("hf://org/name", "ahead")["config"]
    assert found["hf_quant_config.json"] == {"quant_algo": "FP8"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("hf://org/other", "hf://org/other cannot be fetched: "),
        ("s3://bucket/nowhere", "s3://bucket/nowhere has no config.json"),
        ("s3://bucket/Name-GGUF", "s3://bucket/Name-GGUF has no config.json. GGUF is llama.cpp's"),
        ("s3://bucket/none.tar", "s3://bucket/none.tar cannot be fetched: "),
    ],
)
def test_what_is_not_there_is_named(ask, source, said):
    assert said in ask(source)["error"]


def test_a_hub_that_cannot_be_reached_is_one_line(ask, store, monkeypatch):
    monkeypatch.setattr(store, "url", "http://127.0.0.1:1")
    assert "hf://org/name cannot be fetched: " in ask("hf://org/name")["error"]
