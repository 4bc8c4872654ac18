"""cli: an expected failure is one line on stderr and a non-zero exit."""

from __future__ import annotations

import asyncio
import json
import re
import socket
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

MODELS = "models:\n  small: {weights: weights, aliases: [tiny]}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models.yaml").write_text(MODELS)
    return tmp_path


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield str(sock.getsockname()[1])


def loading_failure(err: str) -> str:
    """The message of the one line that says it."""
    assert err.count("\n") == 1
    error = json.loads(err)["error"]
    assert (error["type"], error["code"]) == ("server_error", "model_loading_failed")
    return error["message"]


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
    assert "commands.md" in text


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
    status, _, err = run("serve")
    warning, error = err.splitlines()
    assert warning.startswith("warning: TRITON_GPRC_PORT is not a setting")
    assert warning.endswith("did you mean TRITON_GRPC_PORT?")
    assert "a-secret" not in err
    assert error.startswith("error: PORT=0")
    assert status == 1


@pytest.mark.parametrize("command", ["serve", "proxy"])
def test_a_missing_secret_is_said_before_anything_is_built(fails, folder, monkeypatch, command):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    tool = "server_tools: {t: {url: 'https://x.example', headers: {X: '${NO_SUCH_KEY}'}}}"
    (folder / "models.yaml").write_text(f"models:\n  small: {{weights: w, {tool}}}\n")
    told = fails(command, "--models-file", folder / "models.yaml")
    assert "models.small.server_tools.t.headers" in told
    assert "NO_SUCH_KEY is not set" in told


def test_a_build_without_weights_says_where_they_are_missed(run, folder):
    status, _, err = run(
        "build", "--models-file", folder / "models.yaml", "--artifacts-dir", folder / "a"
    )
    assert status == 1
    assert str(folder / "weights") in loading_failure(err)


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
    assert said[1:] == ["callers are known by JWT_ISSUER: docs/access.md"]


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
    _, _, err = run(*given, "--dry-run", "--tensorrt-llm", "0.16.0")
    assert "0.16.0 is too old" in loading_failure(err)
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
