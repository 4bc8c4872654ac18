"""Errors about a guide, as the caller receives them; tests/server has most of them."""

from __future__ import annotations

import pytest

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import ErrorCode, InvalidRequest, RequestError
from proxy.language.structured.constraint_errors import map_constraint_error

SCHEMA = Constraint(GuideKind.JSON_SCHEMA, "{}", "guided_json")


@pytest.mark.parametrize(
    ("constraint", "param", "code", "expected"),
    [
        (None, "guided_decoding_guide", "invalid_parameter", ("tools", "invalid_schema")),
        (SCHEMA, "constraint", "unsupported_parameter", ("guided_json", "unsupported_parameter")),
        (SCHEMA, "max_tokens", "invalid_parameter", ("max_tokens", "invalid_parameter")),
    ],
)
def test_an_error_about_a_guide_names_the_callers_field(constraint, param, code, expected):
    wrong = InvalidRequest("it is wrong", code=ErrorCode(code), param=param)
    found: RequestError = wrong
    try:
        map_constraint_error(wrong, constraint)
    except RequestError as error:
        found = error
    assert (found.param, found.code) == expected
