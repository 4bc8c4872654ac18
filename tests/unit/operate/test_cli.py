"""cli: an expected failure is one line on stderr and a non-zero exit."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import typer

from proxy.cli import ACCOUNTS, RUNNING, START, app, misspelt
from proxy.operate import run as running
from proxy.settings import Settings
from tests.fixtures.application import application
from tests.fixtures.demo_folder import FOLDER, TRAINED
from tests.fixtures.published import config
from tests.fixtures.running_app import RunningApp
from tests.fixtures.stack import free_port

MODELS = "models:\n  small: {weights: weights, aliases: [tiny]}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models.yaml").write_text(MODELS)
    return tmp_path


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield str(sock.getsockname()[1])


@pytest.mark.parametrize("command", ["serve", "triton", "proxy", "build", "models", "doctor"])
def test_help_names_each_options_variable_and_default(command):
    options = typer.main.get_command(app).commands[command].params
    fields = Settings.model_fields
    named = 0
    for option in options:
        variable = re.search(r"Variable: ([A-Z_]+)\.$", option.help or "")
        if variable is None:
            continue
        named += 1
        default = fields[variable[1].lower()].default
        shown = {None: "off"}.get(default, str(default))
        if variable[1] == "TRITON_URL":
            shown = f"grpc://127.0.0.1:{fields['triton_grpc_port'].default}"
        assert option.show_default == shown, option.name
    assert named >= 2


def test_help_has_headings_and_begins_with_serve(succeeds):
    text = succeeds("--help")
    places = [text.index(heading) for heading in (START, RUNNING, ACCOUNTS)]
    assert places == sorted(places)
    assert 0 < text.index(" serve ") < text.index(" triton ") < text.index(" build ") < places[1]
    assert " health " not in text
    assert "README names the page" in text


@pytest.mark.parametrize("command", ["serve", "proxy"])
def test_a_taken_port_is_said_before_anything_else(fails, folder, taken, command):
    (folder / "models.yaml").write_text("models: {m: {weights: none}}")
    err = fails(command, "--port", taken, "--models-file", folder / "models.yaml")
    assert f"PORT={taken}" in err
    assert "set PORT to a free port" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "--port", "70000"), "PORT=70000"),
        (("proxy", "--triton", "http://triton:8000/v2"), "grpc://host:port"),
        (("build", "--tensorrt-llm", "1.2"), "--tensorrt-llm needs --dry-run"),
    ],
)
def test_a_wrong_option_is_named(fails, arguments, said):
    assert said in fails(*arguments)


def test_a_misspelt_variable_is_named_at_the_start(run, monkeypatch):
    monkeypatch.setenv("TRITON_GPRC_PORT", "a-secret")
    monkeypatch.setenv("PORT", "0")  # ends the start
    status, out, err = run("serve")
    assert json.loads(out)["event"].startswith("warning: TRITON_GPRC_PORT is not a setting")
    assert json.loads(out)["event"].endswith("did you mean TRITON_GRPC_PORT?")
    assert json.loads(err)["error"]["message"].startswith("PORT=0")
    monkeypatch.setenv("LOG_FORMAT", "text")
    _, text, error = run("serve")
    assert text.startswith("[serve] warning: TRITON_GPRC_PORT is not a setting")
    assert error.startswith("error: PORT=0")
    warning, error = run("build")[2].splitlines()
    assert warning.startswith("warning: TRITON_GPRC_PORT is not a setting")
    assert error.startswith("error: PORT=0")
    assert "a-secret" not in out + err + text + warning
    assert status == 1


@pytest.mark.parametrize("command", ["serve", "proxy"])
def test_a_missing_secret_is_said_before_anything_is_built(fails, folder, monkeypatch, command):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    tool = "server_tools: {t: {url: 'https://x.example', headers: {X: '${NO_SUCH_KEY}'}}}"
    (folder / "models.yaml").write_text(f"models:\n  small: {{weights: w, {tool}}}\n")
    told = fails(command, "--models-file", folder / "models.yaml")
    assert "models.small.server_tools.t.headers" in told
    assert "NO_SUCH_KEY is not set" in told


def test_a_build_without_weights_says_where_they_are_missed(fails, folder):
    given = ("--models-file", folder / "models.yaml", "--artifacts-dir", folder / "a")
    assert str(folder / "weights") in fails("build", *given)


# MODEL_PATH, and why it cannot be served
WRONG_PATHS = {
    "missing": "the folder does not exist",
    "missing/": "the folder does not exist",
    "~/missing": "the folder does not exist",
    "note.txt": "it is a file: give the folder that also has its config.json",
    "note.txt/inside": "it cannot be read: Not a directory",
    "n" * 256: "it cannot be read: File name too long",
    "fake.gguf": "it is not a GGUF file, whatever its name says: fetch it again",
    "empty": "it has no genai_config.json and no config.json",
    "empty/": "it has no genai_config.json and no config.json",
    "../here/empty": "it has no genai_config.json and no config.json",
    "outer": "it has no genai_config.json and no config.json; take one of {here}/outer/inner",
    "blank": "config.json does not say which model it is: it has no 'model_type'",
    "shapeless": "config.json does not state the model's shape: it has no 'num_hidden_layers'",
    "weightless": "it has no weights: *.safetensors or *.bin",
    "checkpoint": "it is TensorRT-LLM's: give the folder of the weights it was made of",
    "plan": "it is TensorRT-LLM's: give the folder of the weights it was made of",
    **dict.fromkeys(
        ("hf://org/name", "s3://bucket/folder", "https://x.example/model.tar.gz"),
        "it is an address, and MODEL_PATH takes a folder or a GGUF file: give the address to "
        "`weights` in models.yaml",
    ),
}
CONFIGS = {
    "blank": {},
    "shapeless": {"model_type": "llama"},
    "weightless": config("llama-3.1-8b"),
    "checkpoint": {"architecture": "LlamaForCausalLM", "dtype": "float16"},
    "plan": {"pretrained_config": {}, "build_config": {}},
}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """The working folder, with what WRONG_PATHS name."""
    for name, found in CONFIGS.items():
        (tmp_path / "here" / name).mkdir(parents=True)
        (tmp_path / "here" / name / "config.json").write_text(json.dumps(found))
    monkeypatch.chdir(tmp_path / "here")
    Path("outer/inner").mkdir(parents=True)
    Path("outer/inner/genai_config.json").touch()
    Path("empty").mkdir()
    for name in ("note.txt", "fake.gguf"):
        Path(name).write_text("a note")
    return Path.cwd()


def test_a_wrong_model_path_is_refused_in_the_form_of_other_errors(run, here, monkeypatch):
    monkeypatch.setenv("PORT", str(free_port()))
    for path, reason in WRONG_PATHS.items():
        monkeypatch.setenv("MODEL_PATH", path)
        shown = path if "://" in path else path.rstrip("/")  # as a Path has it
        told = f"Failed to load model from MODEL_PATH={shown}: {reason.format(here=here)}"
        status, _, err = run("serve", "--artifacts-dir", here / "a")
        body = {"message": told, "type": "server_error", "code": "model_loading_failed"}
        assert (status, json.loads(err)) == (1, {"error": body}), path
        assert run("build") == (1, "", f"error: {told}\n"), path


def test_a_terminal_gets_words_and_not_json(here):
    terminal, other = os.openpty()
    environment = {**os.environ, "MODEL_PATH": "empty"}
    command = [sys.executable, "-m", "proxy.cli", "serve"]
    with os.fdopen(other, "wb") as end:
        subprocess.run(command, env=environment, stdout=end, stderr=end, check=False)
    said = os.read(terminal, 65_536).decode()
    os.close(terminal)
    assert said.startswith("error: Failed to load model from MODEL_PATH=empty: it has no genai")


def test_a_build_without_its_tools_says_what_to_run(fails, tmp_path, monkeypatch):
    version = metadata.version

    def without_torch(package: str) -> str:
        if package == "torch":
            raise metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(metadata, "version", without_torch)
    for name in TRAINED:
        (tmp_path / name).symlink_to(FOLDER / name)
    monkeypatch.setenv("MODEL_PATH", str(tmp_path))
    err = fails("build", "--artifacts-dir", tmp_path / "a")
    assert "needs torch: run pip install 'triton-openai[build]', or in a clone make" in err


def test_a_default_that_a_remote_triton_cannot_take_is_refused(fails, monkeypatch):
    monkeypatch.setenv("DEFAULT_MAX_TOKENS", "5")
    assert "DEFAULT_MAX_TOKENS" in fails("proxy", "--triton", "grpc://far:8001")


@pytest.mark.parametrize(
    ("given", "is_said"),
    [({}, True), ({"admin": "on"}, False), ({"api_key": "k" * 32}, False)],
)
def test_the_start_says_how_to_get_an_admin_key(given, is_said):
    said: list[str] = []
    proxy = RunningApp(application())
    with proxy:
        settings = Settings(port=int(proxy.url.rpartition(":")[2]), **given)
        asyncio.run(running.announce(settings, "demo", said.append))
    assert said[0].startswith("ready: ")
    _, _, line = said[-1].partition("\n")
    assert line.startswith(f"curl -N {proxy.url}/v1/chat/completions ")
    assert '"model": "demo"' in line
    assert any("KEY_PEPPER" in line and "ADMIN=on" in line for line in said) is is_said


def test_where_callers_have_no_key_of_ours_the_start_says_how_they_are_known():
    said: list[str] = []
    with RunningApp(application()) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        settings = Settings(port=port, jwt_issuer="https://a.example", jwt_audience=("a",))
        asyncio.run(running.announce(settings, "demo", said.append))
    assert said[1:] == ["callers are known by JWT_ISSUER"]


GPU_MODEL = """\
models:
  big:
    weights: weights
    runtime: tensorrt_llm
    gpu: {quantization: fp8, memory_gb: 80, architecture: hopper}
"""


def test_a_dry_run_says_the_commands_of_another_version(fails, run, folder):
    (folder / "models.yaml").write_text(GPU_MODEL)
    (folder / "weights").mkdir()
    (folder / "weights" / "config.json").write_text(json.dumps(config("llama-3.1-8b")))
    given = ["build", "--models-file", folder / "models.yaml", "--artifacts-dir", folder / "a"]
    status, out, _ = run(*given, "--dry-run", "--tensorrt-llm", "1.2.1")
    assert status == 0
    assert "--format fp8" in out
    assert "# memory of a GPU: " in out
    assert "for the KV cache: about " in out
    assert not (folder / "a").exists()
    assert "0.16.0 is too old" in run(*given, "--dry-run", "--tensorrt-llm", "0.16.0")[2]
    assert "'x.y' is not a version" in fails(*given, "--dry-run", "--tensorrt-llm", "x.y")


SETTINGS = [name.upper() for name in Settings.model_fields]


def found(**variables: str) -> dict[str, str]:
    return dict(misspelt(variables, SETTINGS))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MAX_CHOICE", "MAX_CHOICES"),
        ("TRITON_GPRC_PORT", "TRITON_GRPC_PORT"),
        ("REQUEST_TIMEOUT", "REQUEST_TIMEOUT_S"),
        ("model_file", "MODELS_FILE"),
        ("LOG_LEVL", "LOG_LEVEL"),
        ("CORS_ORIGIN", "CORS_ORIGINS"),
    ],
)
def test_a_variable_that_is_nearly_a_setting_is_named(name, meant):
    assert found(**{name: "1"}) == {name: meant}


def test_a_setting_and_a_variable_of_another_program_or_of_kubernetes_are_not():
    """The manifests' own services are called `triton` and `proxy`, and get links."""
    others = (
        *("HOME", "PATH", "HOSTNAME", "PORTS", "SHOST", "LOGNAME", "HF_HOME", "LOGLEVEL"),
        *("TRITON_SERVER_VERSION", "TRITON_SERVER_GPU_ENABLED", "NVIDIA_TRITON_SERVER_VERSION"),
        *("TRITON_CACHE_DIR", "TRITON_HOME", "MAX_JOBS", "OMP_NUM_THREADS", "TORCH_INDEX_URL"),
        *("GPUS_PER_NODE", "GRAFANA_PASSWORD", "HTTP_PROXY"),
    )
    links = {
        "TRITON_PORT": "tcp://10.0.0.1:8001",
        "TRITON_SERVICE_HOST": "10.0.0.1",
        "TRITON_SERVICE_PORT": "8001",
        "TRITON_SERVICE_PORT_GRPC": "8001",
        "TRITON_PORT_8001_TCP": "tcp://10.0.0.1:8001",
        "TRITON_PORT_8001_TCP_ADDR": "10.0.0.1",
        "TRITON_HTTP_PORTS": "tcp://10.0.0.1:8000",
        "MAX_CHOICE_SERVICE_HOST": "10.0.0.1",
    }
    names = [*SETTINGS, *(setting.lower() for setting in SETTINGS)]
    assert found(**dict.fromkeys([*others, *names], "1"), **links) == {}
