"""Commands, run as from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.cli import SERVERS, main

Run = Callable[..., tuple[int, str, str]]
Words = Callable[..., str]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """run(*arguments) -> exit status, stdout, stderr."""

    def ended(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        return int(end.value.code or 0), *capfd.readouterr()

    return ended


@pytest.fixture
def succeeds(run: Run) -> Words:
    """succeeds(*arguments) -> what a successful command prints, which is nothing on stderr."""

    def printed(*arguments: str | Path) -> str:
        status, out, err = run(*arguments)
        assert (status, err) == (0, "")
        return out

    return printed


@pytest.fixture
def fails(run: Run) -> Words:
    """fails(*arguments) -> the message of the one line of an error."""

    def said(*arguments: str | Path) -> str:
        status, out, err = run(*arguments)
        assert (status, out) == (1, "")
        assert err.count("\n") == 1
        if arguments[0] in SERVERS:
            return json.loads(err)["error"]["message"]
        assert err.startswith("error: ")
        return err

    return said
