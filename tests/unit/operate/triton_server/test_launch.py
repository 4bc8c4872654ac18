"""launch: tritonserver's command line, environment and files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from build_engines.models_file import ModelsFile
from proxy.operate.triton_server import launch
from proxy.operate.triton_server.launch import RESTRICTED
from proxy.settings import Settings
from proxy.settings.triton import TRITON_SECRET

SECRET = "a-long-enough-secret"


def options(host: str = "127.0.0.1", http: int | None = 2) -> dict[str, str]:
    settings = Settings(
        triton_host=host,
        triton_grpc_port=1,
        triton_http_port=http,
        triton_metrics_port=3,
        triton_secret=SECRET,
    )
    return dict(option.partition("=")[::2] for option in launch.server_options(settings))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_grpc_and_metrics_listen_where_the_settings_say_and_http_on_loopback_or_not_at_all(host):
    found = options(host)
    assert found["--grpc-address"] == found["--metrics-address"] == host
    assert found["--http-address"] == "127.0.0.1"
    assert [found[f"--{kind}-port"] for kind in ("grpc", "http", "metrics")] == ["1", "2", "3"]
    found = options(host, http=None)
    assert found["--allow-http"] == "false"
    assert not [name for name in found if name.startswith("--http")]


def test_what_changes_the_server_itself_needs_the_secret():
    groups, _, key = options()["--grpc-restricted-protocol"].partition(":")
    assert set(groups.split(",")) == {"shared-memory", "model-repository", "trace", "logging"}
    assert key == f"triton-openai={SECRET}"
    groups, _, key = options()["--http-restricted-api"].partition(":")
    assert set(RESTRICTED) < set(groups.split(","))
    assert {"inference", "model-config", "metadata"} < set(groups.split(","))
    assert "health" not in groups.split(",")
    assert key == f"triton-openai={SECRET}"


def test_each_launcher_makes_its_own_secret_and_the_operators_is_kept():
    one, other = (launch.with_secret(Settings()).triton_secret_value for _ in range(2))
    assert one != other
    assert TRITON_SECRET.fullmatch(one)
    given = Settings(triton_secret=SECRET)
    assert launch.with_secret(given).triton_secret_value == SECRET


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
     "API_KEY", "METRICS_KEY", "KEY_PEPPER", "STORE_URL", "OLD_KEY_PEPPERS",
     "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "TRITON_SECRET"],
)  # fmt: skip
def test_credentials_of_the_build_and_the_proxy_do_not_reach_tritonserver(name):
    found = launch.environment({name: "x", "HF_HOME": "/h"})
    assert name not in found
    assert found["HF_HOME"] == "/h"


def test_only_the_embedded_servers_models_run_with_our_python():
    """An installed server's models find TensorRT-LLM through the first python3 on PATH."""
    ours = str(Path(sys.executable).parent)
    assert launch.environment({"PATH": "/theirs"})["PATH"] == "/theirs"
    embedded = launch.environment({"PATH": "/theirs"}, ["/libraries"])
    assert embedded["PATH"] == f"{ours}:/theirs"


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        ("Client shared memory is disabled. Start the server with '--allow-client-shm=true'", True),
        ("an older server, which ends at an option that it does not know", False),
    ],
)
def test_a_server_that_can_refuse_shared_memory_is_told_not_to(
    tmp_path, monkeypatch, program, wanted
):
    (tmp_path / "tritonserver").write_text(program)
    (tmp_path / "tritonserver").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    models = ModelsFile.model_validate({"models": {"m": {"weights": "w"}}})
    found = launch.prepared(Settings(artifacts_dir=tmp_path), models).arguments
    assert ("--allow-client-shm=true" in found) is wanted


def test_an_embedded_server_gets_no_absolute_path_of_the_user_and_shows_no_secret(tmp_path):
    folder = tmp_path / "a folder"
    made = launch.embedded(Settings(artifacts_dir=folder, triton_secret=SECRET))
    assert made.log.parent.is_dir()
    assert not [argument for argument in made.arguments if "a folder" in argument]
    prefix = f"--backend-config=python,shm-region-prefix-name={made.shm_prefix}"
    assert {prefix, "--allow-gpu-metrics=false"} < set(made.arguments)
    assert f"{SECRET}" not in repr(made).replace(str(made.arguments), "")
