"""structural_tags: a caller's tag as the engine gets it."""

from __future__ import annotations

from proxy.structured.schema import SchemaLimits
from proxy.structured.structural_tags import WHITESPACE_AT_MOST, checked

ANY = {"type": "json_schema", "json_schema": {"type": "object"}}


def test_the_white_space_of_json_is_bounded_wherever_it_stands():
    tag = {"type": "tag", "begin": "<", "content": ANY, "end": ">"}
    found = checked({"format": {"type": "sequence", "elements": [tag]}}, "f", SchemaLimits())
    content = found["elements"][0]["content"]
    assert content == {**ANY, "max_whitespace_cnt": WHITESPACE_AT_MOST}
    assert "max_whitespace_cnt" not in tag["content"]


def test_a_bound_of_the_callers_stays():
    given = {**ANY, "max_whitespace_cnt": 2}
    assert checked({"format": given}, "f", SchemaLimits()) == given
