"""What a model wrote for a tool, against the tool's schema."""

from __future__ import annotations

import pytest

from proxy.domain.server_tools import ServerTool
from proxy.server_tools.arguments import (
    InvalidArguments,
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
