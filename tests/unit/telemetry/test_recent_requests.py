"""The requests that ended last: what is kept of them, what is not, and how much at most."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from proxy.domain.record import MOST_STAGES, RequestRecord, Stage, StageName, stage
from proxy.telemetry.recent_requests import (
    ATTRIBUTES,
    STAGES_BYTES,
    RecentRequests,
)
from proxy.telemetry.request_log import RequestLog

CHAT = "/v1/chat/completions"


def end(recent: RecentRequests, request_id: str, **line: object) -> None:
    """A request whose log line has these fields."""
    path, status = line.get("path", CHAT), line.get("status")
    record = RequestRecord(request_id=request_id, path=path, status=status)
    record.end()
    recent.ended(record, {"path": CHAT, "duration_ms": 1.0, **line})


def ids(recent: RecentRequests) -> list[str]:
    return [each["id"] for each in recent.last(100)]


def test_the_stages_of_a_request_have_the_attributes_that_may_be_kept():
    recent = RecentRequests(10)
    recorded = RequestLog(recent).recorded("POST", CHAT)
    with capture_logs(), recorded as record:
        record.request_id, record.id, record.model = "req_1", "chatcmpl-1", "demo"
        record.user = "someone"
        with stage(StageName.TRITON) as triton:
            triton.attributes.update(endpoint="10.0.0.1:8001", prompt="a secret", tokens=3)
            with (
                pytest.raises(ValueError, match="no"),
                Stage(StageName.ROUTING, triton.record, triton),
            ):
                raise ValueError("no")
    found = recent.find("req_1")
    assert (found["id"], found["answer_id"]) == ("req_1", "chatcmpl-1")
    outer, inner = found["stages"]
    assert (outer["name"], outer["parent"], outer["error"]) == ("triton", None, None)
    assert outer["attributes"] == {"endpoint": "10.0.0.1:8001", "tokens": 3}
    assert (inner["name"], inner["parent"], inner["error"]) == ("routing", 0, "ValueError")
    assert 0 <= outer["begin_ms"] <= inner["begin_ms"] <= found["duration_ms"] + 0.1
    assert inner["duration_ms"] <= outer["duration_ms"]
    assert "user" not in found


def test_the_oldest_is_forgotten_under_both_ids():
    recent = RecentRequests(2)
    for number in range(3):
        end(recent, f"r{number}", id=f"a{number}", model="demo")
    assert ids(recent) == ["r2", "r1"]
    assert recent.find("r0") is recent.find("a0") is None
    assert recent.find("a1")["id"] == "r1"
    end(recent, "r2", model="demo", prompt_tokens=7)
    end(recent, "other", model="demo")
    assert recent.find("r2")["prompt_tokens"] == 7  # of two with one id, the last


def test_what_asks_nothing_of_a_model_is_not_kept():
    recent = RecentRequests(10)
    end(recent, "models", path="/v1/models", status=200)
    end(recent, "probe", path="/health/ready", error="model_unavailable")
    end(recent, "ping", path="/ping", error="model_unavailable")
    end(recent, "watching", path="/admin/v1/requests/r", error="request_not_found")
    end(recent, "stranger", error="invalid_api_key", status=401)
    end(recent, "", error="invalid_json")
    assert ids(recent) == []
    end(recent, "wrong", error="model_not_found", status=404)
    assert ids(recent) == ["wrong"]


def test_stages_are_bounded_and_end_with_the_request():
    recent = RecentRequests(1)
    record = RequestRecord(request_id="r", path=CHAT)
    for _ in range(MOST_STAGES + 3):
        one = Stage(StageName.TRITON, record, began=record.began + 1.0)
        one.attributes.update(dict.fromkeys(ATTRIBUTES, "é" * 10000))
        one.attributes["tokens"] = 10**40
    record.ended = record.began + 3.0
    recent.ended(record, {"path": CHAT, "model": "demo", "duration_ms": 3000.0})
    found = recent.find("r")
    assert len(found["stages"]) == MOST_STAGES
    assert len(json.dumps(found["stages"])) < STAGES_BYTES
    assert found["dropped_stages"] == 3
    (last,) = found["stages"][-1:]
    assert (last["begin_ms"], last["duration_ms"]) == (1000.0, 2000.0)
