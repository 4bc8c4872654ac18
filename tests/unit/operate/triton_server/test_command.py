"""command: tritonserver's command line and environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.operate.triton_server import command
from proxy.operate.triton_server.binaries import Wheel
from proxy.operate.triton_server.command import Place
from proxy.operate.triton_server.ranks import World
from proxy.operate.triton_server.run_folder import RunFolder

WHEEL = Wheel(site_packages=Path("/venv/lib"), python="3.11")


def place(host: str = "127.0.0.1", http: int | None = 2) -> Place:
    return Place(
        host=host, grpc_port=1, http_port=http, metrics_port=3, shm_prefix="mine-", secret="s3cr3t"
    )


def arguments(host: str = "127.0.0.1", http: int | None = 2) -> list[str]:
    folder = RunFolder(artifacts=Path("/a folder/artifacts"), python="3.11")
    return command.embedded(WHEEL, folder, place(host, http), exit_timeout_s=5)


def options(arguments: list[str]) -> dict[str, str]:
    return dict(argument.partition("=")[::2] for argument in arguments)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_grpc_and_metrics_listen_where_the_settings_say_and_http_on_loopback_only(host):
    told = options(arguments(host))
    assert told["--grpc-address"] == told["--metrics-address"] == host
    assert told["--http-address"] == "127.0.0.1"
    assert [told[f"--{kind}-port"] for kind in ("grpc", "http", "metrics")] == ["1", "2", "3"]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_http_is_off_where_its_port_is_not_set(host):
    told = options(arguments(host, http=None))
    assert told["--allow-http"] == "false"
    assert not [name for name in told if name.startswith("--http")]


def test_what_changes_the_server_itself_needs_the_secret():
    told = options(arguments())
    groups, _, key = told["--grpc-restricted-protocol"].partition(":")
    assert set(groups.split(",")) == {"shared-memory", "model-repository", "trace", "logging"}
    assert key == "triton-openai=s3cr3t"
    groups, _, key = told["--http-restricted-api"].partition(":")
    assert set(command.RESTRICTED) < set(groups.split(","))
    assert {"inference", "model-config", "metadata"} < set(groups.split(","))
    assert "health" not in groups.split(",")
    assert key == "triton-openai=s3cr3t"


def test_the_secret_is_not_shown_with_the_place():
    assert "s3cr3t" not in repr(place())


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
     "API_KEY", "METRICS_KEY", "KEY_PEPPER", "STORE_URL", "OLD_KEY_PEPPERS",
     "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "TRITON_SECRET"],
)  # fmt: skip
def test_credentials_of_the_build_and_the_proxy_do_not_reach_tritonserver(name):
    found = command.environment({name: "x", "HF_HOME": "/h"}, bin_folder=Path("/venv/bin"))
    assert name not in found
    assert found["HF_HOME"] == "/h"


def test_no_path_that_a_shell_reads_has_the_folder_of_the_user():
    assert not [argument for argument in arguments() if "a folder" in argument]


def test_regions_carry_the_launchers_mark():
    assert "--backend-config=python,shm-region-prefix-name=mine-" in arguments()


def test_libraries_and_the_environments_python_come_first():
    base = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/cuda", "HOME": "/home/ann"}
    libraries = [WHEEL.libraries, Path("/python/lib")]
    found = command.environment(base, bin_folder=Path("/venv/bin"), libraries=libraries)
    assert found["PATH"] == "/venv/bin:/usr/bin"
    assert found["LD_LIBRARY_PATH"] == "/venv/lib/nvidia_pytriton.libs:/python/lib:/cuda"
    assert found["HOME"] == "/home/ann"


def test_a_libpython_that_the_loader_finds_adds_no_folder():
    found = command.environment({}, bin_folder=Path("/venv/bin"), libraries=[WHEEL.libraries, None])
    assert found["LD_LIBRARY_PATH"] == "/venv/lib/nvidia_pytriton.libs"


def test_an_installed_server_has_its_own_backends_libraries_and_gpu_metrics():
    folder = RunFolder(artifacts=Path("/artifacts"), python="3.12")
    server = Path("/opt/tritonserver/bin/tritonserver")
    found = command.installed(server, folder, place("0.0.0.0"), World(), exit_timeout_s=5)
    assert found[0] == str(server)
    told = {argument.partition("=")[0] for argument in found}
    assert not told & {"--backend-directory", "--allow-gpu-metrics"}
    assert {"--model-repository", "--disable-auto-complete-config", "--backend-config"} <= told
    assert "LD_LIBRARY_PATH" not in command.environment({}, bin_folder=Path("/venv/bin"))
