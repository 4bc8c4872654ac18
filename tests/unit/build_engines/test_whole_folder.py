"""whole_folder: a folder that appears when it is complete, and is current only as it was made."""

from __future__ import annotations

import pytest

from build_engines.whole_folder import Provenance, is_made, made

HERE = Provenance(key="k", tools={"builder": "1.0", "library": "2.0"})


@pytest.fixture
def folder(tmp_path):
    with made(tmp_path / "m", HERE) as target:
        (target / "one").touch()
    return tmp_path / "m"


def test_it_is_current_for_the_same_provenance_alone(folder):
    assert is_made(folder, HERE)
    assert not is_made(folder, Provenance(key="other", tools=HERE.tools))
    assert not is_made(folder, Provenance(key="k", tools={"builder": "1.1", "library": "2.0"}))


def test_a_tool_that_is_not_installed_here_makes_nothing_stale(folder):
    assert is_made(folder, Provenance(key="k", tools={"builder": None, "library": "2.0"}))


def test_a_failure_leaves_the_old_folder(folder):
    def fail() -> None:
        with made(folder, Provenance(key="new")):
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert is_made(folder, HERE)
    assert (folder / "one").exists()
