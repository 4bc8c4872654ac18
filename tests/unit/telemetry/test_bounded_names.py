"""BoundedNames: the first names, of one process or of several together."""

from __future__ import annotations

from triton_openai.proxy.telemetry.bounded_names import BoundedNames


def test_the_first_names_are_admitted_and_stay_so():
    names = BoundedNames(2)
    assert [names.admits(name) for name in ("a", "b", "c", "a", "b", "c")] == [
        *(True, True, False),
        *(True, True, False),
    ]


def test_without_room_there_is_no_name_at_all():
    assert not BoundedNames(0).admits("a")


def test_processes_agree_on_the_names(tmp_path):
    first, second = (BoundedNames(2, tmp_path / "names") for _ in range(2))
    assert first.admits("a")
    assert second.admits("b\nwith a line end")
    assert not first.admits("c")
    assert first.admits("b\nwith a line end")
    assert second.admits("a")
    assert not second.admits("c")


def test_a_process_that_is_started_again_has_the_names_of_the_one_before(tmp_path):
    for _ in range(3):
        admitted = [BoundedNames(2, tmp_path / "names").admits(name) for name in "abcd"]
        assert admitted == [True, True, False, False]


def test_a_known_name_costs_no_look_into_the_file(tmp_path):
    names = BoundedNames(2, tmp_path / "names")
    names.admits("a")
    names.admits("b")
    (tmp_path / "names").unlink()
    assert names.admits("a")
    assert not names.admits("c")
    assert not (tmp_path / "names").exists()


def test_where_the_file_cannot_be_written_new_names_have_no_place(tmp_path):
    names = BoundedNames(2, tmp_path / "no folder" / "names")
    assert not names.admits("a")
