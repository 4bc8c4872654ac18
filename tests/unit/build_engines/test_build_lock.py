"""One build at a time in a folder."""

from __future__ import annotations

import threading
from pathlib import Path

from build_engines import build_lock


def test_a_second_build_waits_and_says_so(tmp_path: Path):
    said: list[str] = []
    order: list[str] = []
    is_waiting = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        is_waiting.set()

    def second() -> None:
        with build_lock.held(tmp_path, say):
            order.append("second")

    other = threading.Thread(target=second)
    with build_lock.held(tmp_path, said.append):
        other.start()
        is_waiting.wait()
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert said == [f"another process builds in {tmp_path}: waiting until it has finished"]


def test_another_folder_is_not_locked(tmp_path: Path):
    said: list[str] = []
    (tmp_path / "a").mkdir()
    with build_lock.held(tmp_path, said.append), build_lock.held(tmp_path / "a", said.append):
        assert said == []
