"""Permit slots: each is taken once, by one process of several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from triton_openai.proxy.access.permit_slots import FileSlots

HOLDER = """
import sys
from pathlib import Path
from triton_openai.proxy.access.permit_slots import FileSlots
slots = FileSlots(3, Path(sys.argv[1]))
print(slots.take(), slots.take(), flush=True)
sys.stdin.read()
"""


def test_all_are_taken_once_and_what_is_given_back_is_taken_again(tmp_path):
    slots = FileSlots(3, tmp_path / "permits")
    taken = {slots.take() for _ in range(3)}
    assert taken == {0, 1, 2}
    assert slots.take() is None
    slots.give_back(1)
    assert slots.take() == 1
    assert slots.take() is None


def test_processes_share_them_and_one_that_dies_gives_its_own_back(tmp_path):
    file = tmp_path / "permits"
    slots = FileSlots(3, file)
    command = [sys.executable, "-c", HOLDER, str(file)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        theirs = {int(slot) for slot in holder.stdout.readline().split()}
        assert len(theirs) == 2
        assert {slots.take()} == {0, 1, 2} - theirs
        assert slots.take() is None
        holder.kill()
    assert {slots.take(), slots.take()} == theirs
