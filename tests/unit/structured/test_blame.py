"""Refusals of a guide, as the caller is told of them."""

from __future__ import annotations

import pytest

from triton_openai.proxy.domain.constraint import Constraint, GuideKind
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest, InvalidSchema
from triton_openai.proxy.structured.blame import Blame

SCHEMA = Constraint(GuideKind.JSON_SCHEMA, "{}", "guided_json")
REGEX = Constraint(GuideKind.REGEX, "a", "regex")


def refused(constraint: Constraint | None, param: str, code: str = "invalid_parameter"):
    with pytest.raises(InvalidRequest) as caught, Blame(constraint):
        raise InvalidRequest("it is wrong", code=code, param=param)
    return caught.value


def test_a_refused_expression_is_the_callers_field():
    error = refused(REGEX, "guided_decoding_guide")
    assert (error.param, error.code) == ("regex", "invalid_parameter")


@pytest.mark.parametrize(("constraint", "field"), [(SCHEMA, "guided_json"), (None, "tools")])
def test_a_refused_schema_is_no_schema_that_can_be_used(constraint, field):
    with pytest.raises(InvalidSchema) as caught, Blame(constraint):
        raise InvalidRequest("no", code=ErrorCode.INVALID_PARAMETER, param="guided_decoding_guide")
    assert (caught.value.param, caught.value.code) == (field, "invalid_schema")


def test_a_model_that_cannot_be_guided_is_another_matter():
    error = refused(SCHEMA, "constraint", "unsupported_parameter")
    assert (error.param, error.code) == ("guided_json", "unsupported_parameter")


def test_what_has_nothing_to_do_with_it_passes():
    assert refused(SCHEMA, "max_tokens").param == "max_tokens"
