"""pytest, and then the tests that failed once more, alone, if all are in few files.

    python -m tests.twice PATH [PATH ...] [OPTION ...]

Tests with real servers run two at a time, on machines that stop for seconds. A test that fails
beside others and passes alone met such a pause, or is a test to mend: it is named at the end.
What fails twice has failed, and so have tests of more than MOST_FILES: a pause is short.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import dropwhile

import pytest

MOST_FILES = 5


class Failures:
    """Node ids of the tests that failed, or whose fixtures did. A plugin of pytest.

    cannot_import: a file of tests could not be read, which has nothing to do with a pause.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self.cannot_import = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.cannot_import |= report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.found:
            self.found.append(report.nodeid)


def main(*arguments: str) -> int:
    """The exit status of pytest. Paths come before options."""
    failures = Failures()
    status = pytest.main([*arguments], [failures])
    options = [*dropwhile(lambda each: not each.startswith("-"), arguments)]
    found = failures.found
    files = {test.partition("::")[0] for test in found}
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(files) <= MOST_FILES:
        return status
    if failures.cannot_import:
        return status
    print(f"[tests] once more, alone: {' '.join(found)}", flush=True)
    command = [sys.executable, "-m", "pytest", *options, "-n", "0", *found]
    status = subprocess.run(command, check=False).returncode
    outcome = "failed twice" if status else "failed beside others, and passed alone"
    print(f"[tests] {outcome}: {' '.join(found)}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
