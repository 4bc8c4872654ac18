"""install_step: what a step of the installation says while it runs."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from supply_chain import install_step
from supply_chain.install_step import MEGABYTES, Step
from tests.fixtures.proxy_image import normal
from tests.fixtures.stack import ROOT

LOCKED = Step.named(3, "requirements.lock", has_cuda=False)


def test_a_step_says_its_size_and_an_estimate_before_it_begins():
    said = "240 MB to download, 840 MB on disk: about 50 s"
    assert LOCKED.beginning() == f"step 3/3: installing requirements.lock ({said})"
    torch = Step.named(2, "torch==2.13.0", has_cuda=True)
    assert "CPU build 740 MB, CUDA build up to 5 GB" in torch.beginning()


def test_what_is_left_is_reckoned_from_the_time_of_unpacking_alone():
    line = LOCKED.unpacking(130.0, 30.0, installed=210_000_000)
    assert line == "requirements.lock: 2 min 10 s, 210 of about 840 MB installed, about 90 s left"
    assert "left" not in LOCKED.unpacking(130.0, 30.0, installed=2_000_000_000)


def test_there_is_a_line_each_time_that_the_step_is_not_over():
    rounds = iter([False, False, False, True])
    sizes = iter([(5_000_000, 0), (0, 7_000_000), (0, 7_000_000)])
    lines = list(install_step.watch(lambda seconds: next(rounds), lambda: next(sizes), step=LOCKED))
    downloading, unpacking, compiling = lines
    assert "5 of about 240 MB downloaded" in downloading
    assert "7 of about" in unpacking
    assert "compiling" not in unpacking
    assert compiling.endswith(", compiling what is there")


def test_the_size_of_a_folder_leaves_pythons_caches_out(tmp_path):
    (tmp_path / "a" / "__pycache__").mkdir(parents=True)
    (tmp_path / "a" / "one.py").write_bytes(b"x" * 10)
    (tmp_path / "a" / "__pycache__" / "one.pyc").write_bytes(b"x" * 1000)
    assert install_step.size(tmp_path) == 10


def test_the_lock_takes_as_much_as_is_said():
    """What is here, less what other packages brought: torch, its own, pip."""
    lock = (ROOT / "requirements.lock").read_text()
    names = {normal(name) for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    packages = Path(sysconfig.get_path("purelib"))
    others = sum(
        file.size or 0
        for package in metadata.distributions(path=[str(packages)])
        if normal(package.metadata["Name"]) not in names
        for file in package.files or ()
    )
    installed = install_step.size(packages) - others
    assert MEGABYTES["requirements.lock"][1] == pytest.approx(installed / 1e6, rel=0.15)


def command(*words: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "supply_chain.install_step",
        "3",
        "requirements.lock",
        "--",
        *words,
    ]


TELLS = "import os, sys; print(sys.argv[1:], os.environ['TMPDIR'])"


def test_pip_is_quiet_where_nobody_looks_and_its_status_is_the_steps():
    done = subprocess.run(
        command(sys.executable, "-c", TELLS + "; sys.exit(3)"),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("[make] step 3/3: installing requirements.lock (240 MB to")
    quiet, downloads = second.split("] ")
    assert (quiet, done.returncode) == ("['--quiet'", 3)
    assert not Path(downloads).exists(), "what was downloaded is removed"


def test_on_a_terminal_pip_draws_its_own_bars():
    ours, theirs = pty.openpty()
    with subprocess.Popen(command(sys.executable, "-c", TELLS), cwd=ROOT, stdout=theirs) as step:
        os.close(theirs)
        assert step.wait() == 0
    assert b"--quiet" not in os.read(ours, 4096)
    os.close(ours)
