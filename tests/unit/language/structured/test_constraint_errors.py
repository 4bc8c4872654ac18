"""Errors about a guide, as the caller receives them."""

from __future__ import annotations

import pytest

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import ErrorCode, InvalidRequest, InvalidSchema
from proxy.language.structured.constraint_errors import MappedConstraintErrors

SCHEMA = Constraint(GuideKind.JSON_SCHEMA, "{}", "guided_json")
REGEX = Constraint(GuideKind.REGEX, "a", "regex")


def refused(constraint: Constraint | None, param: str, code: str = "invalid_parameter"):
    with pytest.raises(InvalidRequest) as caught, MappedConstraintErrors(constraint):
        raise InvalidRequest("it is wrong", code=code, param=param)
    return caught.value


def test_an_error_about_an_expression_names_the_callers_field():
    error = refused(REGEX, "guided_decoding_guide")
    assert (error.param, error.code) == ("regex", "invalid_parameter")


@pytest.mark.parametrize(("constraint", "field"), [(SCHEMA, "guided_json"), (None, "tools")])
def test_an_error_about_a_schema_is_an_invalid_schema(constraint, field):
    with pytest.raises(InvalidSchema) as caught, MappedConstraintErrors(constraint):
        raise InvalidRequest("no", code=ErrorCode.INVALID_PARAMETER, param="guided_decoding_guide")
    assert (caught.value.param, caught.value.code) == (field, "invalid_schema")


def test_a_model_without_guides_is_not_an_invalid_schema():
    error = refused(SCHEMA, "constraint", "unsupported_parameter")
    assert (error.param, error.code) == ("guided_json", "unsupported_parameter")


def test_other_errors_pass_unchanged():
    assert refused(SCHEMA, "max_tokens").param == "max_tokens"
