"""What a model wrote for a tool, against the tool's schema."""

from __future__ import annotations

import pytest

from proxy.domain.server_tools import ServerTool
from proxy.server_tools.arguments import (
    InvalidArguments,
    check_schema,
    parse_arguments,
)

TOOL = ServerTool(
    name="weather",
    url="http://x",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "array", "maxItems": 2}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


def test_right_arguments_become_values():
    assert parse_arguments(TOOL, '{"city": "Oslo", "days": [1]}') == {"city": "Oslo", "days": [1]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"city": ', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('["Oslo"]', "not a JSON object"),
        ("{}", '"city" is a required property'),
        ('{"city": 3}', r"\['city'\] are wrong"),
        ('{"city": "Oslo", "unit": "C"}', "unit"),
    ],
)
def test_wrong_ones_are_told_in_words_for_the_model(text, words):
    with pytest.raises(InvalidArguments, match=words):
        parse_arguments(TOOL, text)


@pytest.mark.parametrize(
    "schema",
    [{"type": "objekt"}, {"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}],
)
def test_what_is_no_schema_or_elsewhere_is_refused_at_the_start(schema):
    with pytest.raises(ValueError, match="'weather'"):
        check_schema("weather", schema)
