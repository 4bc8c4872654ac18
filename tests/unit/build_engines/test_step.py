"""Steps of a build, its tools and folders: done once, resumed where it was, whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from build_engines import step, tool
from build_engines.errors import BuildError
from build_engines.step import Step
from build_engines.tool import Say
from build_engines.whole_folder import Provenance, is_made, made


class Written(Step):
    """Writes its text; counts how often."""

    def __init__(self, name: str, store: Path, text: str, after: tuple[Step, ...] = ()) -> None:
        super().__init__(store, after)
        self.name = name
        self.text = text
        self.made: list[list[str]] = []
        self.fault: Callable[[], None] = lambda: None

    def inputs(self) -> list[str]:
        return [self.text]

    def shown(self, target: Path) -> list[str]:
        return [f"write {target / 'text'}"]

    def make(self, target: Path, say: Say) -> None:
        self.made.append(sorted(path.name for path in target.iterdir()))
        (target / "text").write_text(self.text)
        self.fault()


def chain(store: Path, first: str = "a", second: str = "b") -> tuple[Written, Written]:
    one = Written("one", store, first)
    return one, Written("two", store, second, (one,))


def fail() -> None:
    raise BuildError("no")


def test_what_is_done_is_not_done_again(tmp_path):
    said: list[str] = []
    step.run(chain(tmp_path), said.append)
    assert said == ["[1/2] one", "[2/2] two"]
    again = chain(tmp_path)
    step.run(again, said.append)
    assert (again[0].made, again[1].made, len(said)) == ([], [], 2)
    assert (again[1].folder / "text").read_text() == "b"


def test_a_change_redoes_what_comes_after_it_only(tmp_path):
    step.run(chain(tmp_path), str)
    one, two = chain(tmp_path, second="c")
    step.run((one, two), str)
    assert (len(one.made), len(two.made)) == (0, 1)
    one, two = chain(tmp_path, first="z")
    step.run((one, two), str)
    assert (len(one.made), len(two.made)) == (1, 1)


def test_a_step_that_failed_is_named_and_begins_with_what_it_left(tmp_path):
    one, two = chain(tmp_path)
    two.fault = fail
    with pytest.raises(BuildError, match=r"^two: no$"):
        step.run((one, two), str)
    assert not two.is_done
    two.fault = lambda: None
    step.run((one, two), str)
    assert (len(one.made), two.made) == (1, [[], ["text"]])


def test_going_back_costs_nothing_until_the_old_folder_is_swept(tmp_path):
    step.run(chain(tmp_path), str)
    changed = chain(tmp_path, second="c")
    step.run(changed, str)
    assert chain(tmp_path)[1].is_done
    step.sweep(changed, tmp_path)
    assert not chain(tmp_path)[1].is_done
    assert changed[1].is_done


def test_what_would_be_done_is_shown(tmp_path):
    one, two = chain(tmp_path)
    step.run([one], str)
    said: list[str] = []
    step.show((one, two), said.append)
    assert said == ["# one: is done", f"# two: {two.folder}", f"write {two.folder / 'text'}"]
    assert not two.is_done


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
