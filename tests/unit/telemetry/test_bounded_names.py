"""BoundedNames: the first names."""

from __future__ import annotations

from proxy.telemetry.bounded_names import BoundedNames


def test_the_first_names_are_admitted_and_stay_so():
    names = BoundedNames(2)
    assert [names.admits(name) for name in ("a", "b", "c", "a", "b", "c")] == [
        *(True, True, False),
        *(True, True, False),
    ]


def test_without_room_there_is_no_name_at_all():
    assert not BoundedNames(0).admits("a")
