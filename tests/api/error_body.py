"""An error's body, read and held to OpenAI's form."""

from __future__ import annotations


def error_of(response) -> dict:
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert response.json().keys() == {"error"}
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    return error
