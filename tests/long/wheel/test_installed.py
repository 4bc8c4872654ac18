"""The wheel in an empty environment: the demo answers from any folder, without torch."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import openai
import pytest

from tests.fixtures.demo_folder import FOLDER, TRAINED
from tests.fixtures.stack import ROOT, Stack, free_port

PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer"}},
    "required": ["age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the packages that the extra `embedded` brings: those of the lock, as `make` has
    installed them here. xgrammar is apart.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        name, is_pinned, _ = line.partition("==")
        if is_pinned and name != "xgrammar" and not line.startswith("#"):
            copy_package(name.strip(), site)
    subprocess.run([folder / "bin" / "python", *PIP, wheel], check=True)
    return folder


def copy_package(name: str, site: Path) -> None:
    with contextlib.suppress(metadata.PackageNotFoundError):  # one of another Python
        for file in metadata.files(name) or ():
            if file.locate().exists():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file.locate(), site / file)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder, and the user's data folder beside it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "empty").mkdir()
    return folder


def run(
    environment: Path, elsewhere: Path, *command: str, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [environment / "bin" / command[0], *command[1:]],
        cwd=elsewhere / "empty",
        env={**variables(elsewhere), **more},
        capture_output=True,
        text=True,
    )


def variables(elsewhere: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "ARTIFACTS_DIR"}
    return {**kept, "XDG_DATA_HOME": str(elsewhere / "data")}


@pytest.fixture(scope="module")
def refusal(environment: Path, elsewhere: Path) -> str:
    """What a start says without xgrammar."""
    done = run(environment, elsewhere, "triton-openai", "serve", PORT=str(free_port()))
    assert done.returncode == 1
    return str(json.loads(done.stderr)["error"]["message"])


@pytest.fixture(scope="module")
def server(environment: Path, elsewhere: Path, refusal: str) -> Iterator[Stack]:
    """After the command that the refusal names."""
    _, _, command = refusal.strip().rpartition(": pip ")
    subprocess.run([environment / "bin" / "pip", *command.split()], check=True)
    ports = ("PORT", "TRITON_GRPC_PORT", "TRITON_METRICS_PORT")
    started = Stack(
        ["serve"],
        {**variables(elsewhere), **{name: str(free_port()) for name in ports}},
        elsewhere / "log.txt",
        program=[str(environment / "bin" / "triton-openai")],
        root=elsewhere / "empty",
    )
    started.wait_ready()
    yield started
    started.stop()


def test_the_demo_answers_through_the_sdk(server: Stack) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        asked = [{"role": "user", "content": "What is the capital of France?"}]
        answer = client.chat.completions.create(model="demo", messages=asked)
        assert answer.choices[0].message.content == "The capital of France is Paris."
        shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
        asked = [{"role": "user", "content": "Bob is 42 years old."}]
        held = client.chat.completions.create(model="demo", messages=asked, response_format=shape)
        assert '"age"' in held.choices[0].message.content


def test_a_start_without_xgrammar_says_how_to_install_it_without_torch(
    server: Stack, environment: Path, refusal: str
) -> None:
    assert refusal.startswith("xgrammar not installed in ")
    packages = {path.name for path in environment.glob("lib/python*/site-packages/*")}
    assert "xgrammar" in packages
    assert not {"torch", "transformers"} & packages


def test_the_working_folder_stays_empty(server: Stack, elsewhere: Path) -> None:
    assert list((elsewhere / "empty").iterdir()) == []
    assert (elsewhere / "data" / "triton-openai" / "artifacts" / "demo").is_dir()


def test_doctor_says_where_it_looked(environment: Path, elsewhere: Path) -> None:
    done = run(environment, elsewhere, "triton-openai", "doctor")
    lines = " ".join(done.stdout.split())
    assert f"{environment}/lib/" in lines
    assert "torch, transformers" in lines
    assert "pip install 'triton-openai[build]'" in lines


@pytest.mark.parametrize("files", [TRAINED, {"genai_config.json", "model.onnx", "tokenizer.json"}])
def test_another_model_says_what_it_needs_and_what_to_run(
    server: Stack, environment: Path, elsewhere: Path, tmp_path: Path, files: set[str]
) -> None:
    """A Hugging Face folder for its build, an ONNX folder first for its name."""
    for name in files:
        (tmp_path / name).symlink_to(FOLDER / name)
    done = run(environment, elsewhere, "triton-openai", "build", MODEL_PATH=str(tmp_path))
    assert done.returncode == 1
    assert "run pip install 'triton-openai[build]', or in a clone make build-tools" in done.stderr


def test_the_training_is_not_installed(environment: Path, elsewhere: Path) -> None:
    done = run(environment, elsewhere, "python", "-c", "import demo_model.training")
    assert "No module named 'demo_model.training'" in done.stderr


def test_the_proxy_alone_imports_nothing_of_the_others(environment: Path, elsewhere: Path) -> None:
    imports = "import sys, proxy.app; print(*sys.modules)"
    done = run(environment, elsewhere, "python", "-c", imports)
    heavy = {"torch", "transformers", "tokenizers", "xgrammar", "onnxruntime", "pytriton"}
    assert done.returncode == 0, done.stderr
    assert not heavy & set(done.stdout.split())
