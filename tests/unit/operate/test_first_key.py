"""A stranger's first minutes with keys: every command that the start prints does what it says."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.access.store import open_store
from proxy.operate import run as running
from proxy.operate import start
from proxy.operate import store as key_store
from proxy.settings import Settings
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.application import NONE, application, operations
from tests.fixtures.running_app import RunningApp
from tests.fixtures.stack import HANG_S

PEPPER = "a-pepper-for-tests-that-is-long-enough"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of the proxy and of the stranger's shell. Returns a data folder."""
    monkeypatch.setenv("KEY_PEPPER", PEPPER)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # without models.yaml, as for the shipped demo
    return tmp_path / "triton-openai"


def shell(line: str, **variables: str) -> str:
    """What a shell prints for a printed line, with this code as the program that the line names."""
    ours = re.sub(r"[^\s(]*triton-openai ", f"{sys.executable} -m proxy.cli ", line)
    done = subprocess.run(
        ["bash", "-ec", ours],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("with_option", [False, True], ids=["", "--artifacts-dir"])
def test_each_printed_command_works_with_the_printed_keys(environment, with_option, tmp_path):
    option = {"artifacts_dir": tmp_path / "built"} if with_option else {}
    settings = start.settled(Settings(**option))
    said: list[str] = []
    settings = asyncio.run(key_store.prepared(settings, said.append))
    settings = settings.model_copy(update={"models_file": NONE})
    place = tmp_path / "built" if with_option else environment
    assert (place / "store.db").exists()

    store, engine = open_store(settings), ScriptedEngine(deltas("an answer"))
    app = application(engine, settings=settings, store=store, operations=operations("10.0.0.1:1"))
    with capture_logs(), RunningApp(app) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        ready = settings.model_copy(update={"port": port})
        asyncio.run(running.announce(ready, "demo", said.append))
        made, curl = said[-1].splitlines()[1:]
        assert '"finish_reason":"stop"' in shell(f"{made}\n{curl}")
        assert '"finish_reason":"stop"' in shell(f"{made}\n{curl}"), "the tenant exists now"
        admin = Path(said[0].split(" is in ")[1].split(",")[0]).read_text().strip()
        frame = shell(f"triton-openai top --once --interval 0.1 --url {proxy.url}", ADMIN_KEY=admin)
        assert "10.0.0.1:1" in frame
