"""Hypothesis strategies that several tests share."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T", str, bytes, list[bytes])


@st.composite
def cuts(draw: st.DrawFn, whole: T) -> list[T]:
    """`whole` in pieces, cut anywhere."""
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
