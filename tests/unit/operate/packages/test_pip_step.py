"""pip_step: what a step of an installation reports while it runs."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from proxy.operate.packages import pip_step
from proxy.operate.packages.pip_step import MEGABYTES, Step
from tests.fixtures.proxy_image import normal
from tests.fixtures.stack import ROOT

CPU_INDEX = "https://index.example/whl/cpu/"
LOCKED = Step.named("2/2", "requirements.lock")


def test_a_step_says_its_size_and_an_estimate_before_it_begins():
    size = "150 MB to download, 470 MB on disk: 28 s"
    assert LOCKED.beginning() == f"step 2/2: installing requirements.lock ({size})"


def test_the_size_of_torch_is_known_for_its_cpu_build_alone():
    assert "up to 5 GB" in Step.named("1/2", "torch==2.13.0").beginning()
    on_a_cpu = Step.named("1/2", "torch==2.13.0", torch_index=CPU_INDEX)
    assert "740 MB on disk" in on_a_cpu.beginning()


def test_what_is_left_is_estimated_from_the_time_of_unpacking_alone():
    line = LOCKED.unpacking(130.0, 30.0, installed=117_500_000)
    assert line == "requirements.lock: 2 min 10 s, 118 of about 470 MB installed, about 90 s left"
    assert "left" not in LOCKED.unpacking(130.0, 30.0, installed=2_000_000_000)


def test_there_is_a_line_each_time_that_the_step_is_not_over():
    rounds = iter([False, False, False, True])
    sizes = iter([(5_000_000, 0), (0, 7_000_000), (0, 7_000_000)])
    lines = list(pip_step.watch(lambda seconds: next(rounds), lambda: next(sizes), step=LOCKED))
    downloading, unpacking, compiling = lines
    assert "5 of about 150 MB downloaded" in downloading
    assert "7 of about" in unpacking
    assert "compiling" not in unpacking
    assert compiling.endswith(", compiling what is there")


def test_the_size_of_a_folder_leaves_pythons_caches_out(tmp_path):
    (tmp_path / "a" / "__pycache__").mkdir(parents=True)
    (tmp_path / "a" / "one.py").write_bytes(b"x" * 10)
    (tmp_path / "a" / "__pycache__" / "one.pyc").write_bytes(b"x" * 1000)
    assert pip_step.size(tmp_path) == 10


@pytest.mark.parametrize("name", [name for name in MEGABYTES if name.endswith(".lock")])
def test_a_lock_takes_as_much_as_its_step_says(name):
    folder = ROOT if (ROOT / name).exists() else ROOT / "build_engines"
    lock = (folder / name).read_text()
    pinned = {normal(found) for found in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)}
    files = [
        file
        for package in metadata.distributions()
        if normal(package.metadata["Name"]) in pinned
        for file in package.files or ()
        if file.suffix != ".pyc" and ".." not in file.parts
    ]
    installed = sum(file.size or 0 for file in files)
    assert MEGABYTES[name][1] == pytest.approx(installed / 1e6, rel=0.15)


def command(*words: str) -> list[str]:
    module = "proxy.operate.packages.pip_step"
    return [sys.executable, "-m", module, "2/2", "requirements.lock", "--", *words]


TELLS = "import os, sys; print(sys.argv[1:], os.environ['TMPDIR'])"


def test_pip_is_quiet_where_nobody_looks_and_its_status_is_the_steps():
    done = subprocess.run(
        command(sys.executable, "-c", TELLS + "; sys.exit(3)"),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("[make] step 2/2: installing requirements.lock (150 MB to")
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
