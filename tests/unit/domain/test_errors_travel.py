"""Errors come back from a sandbox's process as they were."""

from __future__ import annotations

import pickle

import pytest

from proxy.domain.errors import (
    ErrorCode,
    InvalidRequest,
    RateLimited,
    RequestError,
    UnknownModel,
)


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("no", code=ErrorCode.INVALID_PARAMETER, param="regex"),
        RequestError("no", code=ErrorCode.INVALID_SCHEMA, param="guided_json"),
        RateLimited("later", retry_after_s=3.0),
        UnknownModel("m"),
    ],
)
def test_an_error_is_the_same_after_pickling(error):
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert (found.args, vars(found)) == (error.args, vars(error))
