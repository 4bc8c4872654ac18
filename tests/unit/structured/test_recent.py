from __future__ import annotations

from proxy.structured.recent import Recent


def test_it_forgets_what_nobody_asked_for():
    recent = Recent(2)
    recent.add("a")
    recent.add("b")
    assert "a" in recent
    recent.add("c")
    assert [key in recent for key in "abc"] == [True, False, True]


def test_to_add_again_forgets_nothing():
    recent = Recent(2)
    for key in "abab":
        recent.add(key)
    assert [key in recent for key in "ab"] == [True, True]
