"""What tests start ends with their run, however that ends: servers, orphans, xdist's workers."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.fixtures.process_reaper import marked
from tests.fixtures.stack import ROOT, eventually

RUN = """
import subprocess, sys
from pathlib import Path

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
ORPHAN = f"import subprocess; subprocess.Popen({SLEEP}, start_new_session=True)"

def test_starts():
    server = subprocess.Popen(SLEEP)
    subprocess.run([sys.executable, "-c", ORPHAN], check=True)
    Path("started").touch()
    server.wait()
"""


def test_a_run_that_is_killed_leaves_no_process(tmp_path):
    (tmp_path / "test_run.py").write_text(RUN)
    own = "only-what-this-test-has-started"
    options = ["-n", "1", "-p", "tests.fixtures.process_reaper", "-p", "no:cacheprovider"]
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, "test_run.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OWN": own},
        stdout=subprocess.DEVNULL,
    )
    eventually((tmp_path / "started").exists, 60, "the run has started its processes")
    assert len(list(marked(own))) >= 6, "pytest, a worker, their reapers, a server, an orphan"
    run.kill()
    run.wait()
    eventually(lambda: not list(marked(own)), 20, "nothing that the run has started is left")
