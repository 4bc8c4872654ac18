"""Texts that a model of a family might write on its worst day."""

from __future__ import annotations

from hypothesis import strategies as st

from proxy.language.syntax.families import REASONING_FAMILIES as REASONING
from proxy.language.syntax.families import TOOL_FAMILIES as TOOLS
from tests.unit.language.syntax.syntaxes import SYNTAXES

SCHEMAS = {
    "f": {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}},
    "g": {"properties": {"l": {"type": "array"}, "o": {"type": ["object", "null"]}}},
}
CALLS = [
    {"name": "f", "arguments": {"a": 'x "y" \\ é</parameter>', "n": -1}},
    {"name": "g", "arguments": {"l": [1, {"k": []}], "o": {"a": None}}},
]
JSON_SCRAPS = [
    *"{}[]()\",:'\\\n =;",
    *('{"name": "f"', '"arguments": {', "tru", "null", "None", "-1.", "1e5", "\\u12", "\\x4"),
    *("`", "```xml\n", "\n```\n", "\n~~~\n", "\n\n", "it`s "),
    *("f", "name", "parameters", "f(a=", "```json", "functools", " to=functions.f", "NaN"),
]
THOUGHT = "hm\n so"
ANY = st.text(st.characters(codec="utf-8"), max_size=4)


def tool_marks(family: str) -> list[str]:
    return [*TOOLS[family].marks()]


def reasoning_marks(family: str) -> list[str]:
    kind = REASONING[family]
    return [*kind.marks(), kind.closing]


def samples(family: str) -> list[str]:
    """Well-formed answers, of one call and of two."""
    return [SYNTAXES[family](CALLS[:1]), SYNTAXES[family](CALLS)]


@st.composite
def texts(draw: st.DrawFn, marks: list[str], whole: list[str]) -> str:
    """Marks whole and cut, slices of good answers, bits of JSON and anything else, some of it many
    times over.
    """
    sources = st.sampled_from([*marks, *whole, *JSON_SCRAPS])
    scraps = st.one_of(st.sampled_from([*marks, *JSON_SCRAPS]), _slices(sources), ANY, sources)
    parts = draw(st.lists(st.tuples(scraps, _times()), max_size=12))
    return "".join(scrap * times for scrap, times in parts)


def _slices(sources: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def cut(given: tuple[str, float, float]) -> str:
        text, one, other = given
        start, end = sorted((int(one * len(text)), int(other * len(text))))
        return text[start:end]

    place = st.floats(0, 1)
    return st.tuples(sources, place, place).map(cut)


def _times() -> st.SearchStrategy[int]:
    """Mostly once, at times deep or long."""
    return st.sampled_from([1] * 12 + [2, 3, 40])
