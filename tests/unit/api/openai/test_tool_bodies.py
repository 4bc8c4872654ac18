"""Tools of a request: what a caller says of them, in the domain's words."""

from __future__ import annotations

import pytest

from proxy.api.openai.tool_bodies import FunctionToolBody
from proxy.language.prompting.chat_template import tool_body


@pytest.mark.parametrize(
    ("beside", "within", "is_strict"),
    [
        (None, None, False),
        (True, None, True),
        (None, True, True),
        (True, False, False),
        (False, True, True),
    ],
)
def test_strict_may_stand_beside_the_function(beside, within, is_strict):
    function = {"name": "f", "strict": within}
    given = {"type": "function", "function": function, "strict": beside}
    assert FunctionToolBody.model_validate(given).to_domain().is_strict is is_strict


@pytest.mark.parametrize("name", ["return", "response"])
def test_what_a_function_returns_goes_to_the_template_as_the_caller_calls_it(name):
    """BFCL's tools have it, and those that transformers makes of Python functions."""
    function = {"name": "f", "parameters": {"type": "object"}, name: {"type": "string"}}
    given = {"type": "function", "function": function}
    assert tool_body(FunctionToolBody.model_validate(given).to_domain()) == given
