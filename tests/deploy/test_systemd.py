"""The systemd unit: what it starts and sets exists, and a stop waits for streams."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess

import pytest
import typer.main
from pydantic import ValidationError

from proxy.cli import app
from proxy.domain.errors import LaunchError
from proxy.operate.start import bound
from proxy.operate.triton_server.launch import EXIT_TIMEOUT_S
from proxy.settings import Settings
from tests.deploy.places import DOCKER, ROOT, is_known
from tests.fixtures.application import NONE
from tests.fixtures.stack import free_port

UNIT = DOCKER / "systemd" / "triton-openai.service"
ENVIRONMENT = dict(
    line.split("=", 1)
    for line in (DOCKER / "systemd" / "environment").read_text().splitlines()
    if line and not line.startswith("#")
)


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser["Service"]


def test_what_it_starts_is_a_command_and_what_it_sets_are_settings(service):
    program, command = service["ExecStart"].split()
    assert program.endswith("/.venv/bin/triton-openai")
    assert command in typer.main.get_command(app).commands  # type: ignore[attr-defined]
    own = dict(pair.split("=", 1) for pair in service["Environment"].split())
    unknown = [name for name in (*ENVIRONMENT, *own) if not is_known(name)]
    assert unknown == ["FORWARDED_ALLOW_IPS"]  # the HTTP server reads it


def test_a_stop_waits_for_streams_and_triton(service):
    assert int(service["TimeoutStopSec"]) > Settings().drain_timeout_s + EXIT_TIMEOUT_S
    assert service["KillMode"] == "mixed"


def test_a_proxy_starts_with_this_environment_and_not_without_its_front(monkeypatch):
    given = {name.lower(): value for name, value in ENVIRONMENT.items()}
    front, _ = given.pop("forwarded_allow_ips"), given.pop("host")
    with pytest.raises(ValidationError, match="must have at least 32"):  # as it is written
        Settings(models_file=NONE, **given)
    given |= {"key_pepper": "p" * 32, "metrics_key": "m" * 32}
    settings = Settings(host="0.0.0.0", port=free_port(), models_file=NONE, **given)
    with pytest.raises(LaunchError, match="FORWARDED_ALLOW_IPS"):
        bound(settings)
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", front)
    bound(settings).close()


def test_the_page_installs_what_the_settings_need():
    page = (ROOT / "docs" / "two_machines.md").read_text()
    assert "'.[embedded,redis,postgres]'" in page
    for name in re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", page):
        assert is_known(name) or name == "FORWARDED_ALLOW_IPS"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong():
    done = subprocess.run(
        ["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if "is not executable" not in line]
    assert said == []
