"""step: done once, resumed where it was, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from build_engines import step
from build_engines.errors import BuildError
from build_engines.step import Step
from build_engines.tool import Say


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
