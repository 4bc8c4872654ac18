"""tool: another program's progress, and its end."""

from __future__ import annotations

import sys

import pytest

from build_engines import tool
from build_engines.errors import BuildError


def run(folder, program: str, **options) -> list[str]:
    said: list[str] = []
    command = [sys.executable, "-c", program]
    tool.run(command, log=folder / "log", say=said.append, **options)
    return said


def test_a_bad_end_has_its_last_words_and_where_the_others_are(tmp_path):
    program = "print('one'); print('out of memory'); raise SystemExit(3)"
    with pytest.raises(BuildError, match=r"exit status 3: one \| out of memory .*log\)"):
        run(tmp_path, program)


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BuildError, match="no-such-tool cannot be run: No such file"):
        tool.run(["no-such-tool"], log=tmp_path / "log", say=str)
