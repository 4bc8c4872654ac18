"""The request log: which fields a line has, and its level."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from proxy.telemetry.request_log import RequestLog


@pytest.mark.parametrize(
    ("path", "fields", "level"),
    [
        ("/v1/chat/completions", {"model": "demo"}, "info"),
        ("/v1/chat/completions", {"error": "model_not_found"}, "info"),
        ("/v1/models", {}, "debug"),
        ("/health/ready", {}, "debug"),
        ("/health", {}, "debug"),
        ("/health/ready", {"error": "model_unavailable"}, "debug"),
    ],
)
def test_health_checks_are_never_news(path, fields, level):
    with capture_logs() as lines, RequestLog().recorded("GET", path) as record:
        for name, value in fields.items():
            setattr(record, name, value)
    (written,) = lines
    assert (written["event"], written["log_level"]) == ("request", level)
