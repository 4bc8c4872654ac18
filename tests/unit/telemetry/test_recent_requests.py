"""The requests that ended last, and their lines: what is kept, cut and hidden."""

from __future__ import annotations

import io
import json

import orjson
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.domain.record import MOST_STAGES, RequestRecord, Stage, StageName, stage
from proxy.telemetry import logs
from proxy.telemetry.recent_requests import (
    ATTRIBUTES,
    STAGES_BYTES,
    RecentRequests,
)
from proxy.telemetry.request_log import RequestLog, line_of

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


HOSTILE = "a\n2026-01-01 [info] request\r\x1b[2J\x00\x9b\u2028\u202e\ud800 b"
TEXTS = ("path", "id", "model", "tenant", "key_id", "error", "user", "safety_identifier")


def written(**fields: object) -> dict:
    """The line of a record with these fields, without those of every line."""
    line = line_of(RequestRecord(**fields))
    return {name: line[name] for name in line.keys() & fields.keys()}


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(TEXTS, st.text(max_size=2000))))
def test_whatever_callers_send_a_line_is_bounded_json_without_control_characters(fields):
    found = line_of(RequestRecord(**fields))
    assert orjson.dumps(found).decode().isprintable()
    assert all(len(orjson.dumps(each)) <= 512 * 12 for each in found.values())


def test_texts_are_cut_and_counted():
    record = RequestRecord(
        user="u" * 600, path="/" * 600, metadata={f"{n}": "v" * 600 for n in range(40)}
    )
    for number in (*range(40), 1):
        record.add_endpoint(f"h{number}:1")
    line = line_of(record)
    assert (line["user"], line["path"]) == ("u" * 512 + "…", "/" * 256 + "…")
    assert {len(each) for each in line["metadata"].values()} == {513}
    assert (len(line["metadata"]), line["endpoints"]) == (16, [f"h{n}:1" for n in range(8)])


KEYS = (
    "sk-k3x9q27bt0mz-" + "hidden-_" * 5 + "abc",
    "sk-k3x9q27bt0mz-" + "hidden_" * 3,  # a part of one
    "sk-proj-" + "hidden12" * 12,
    "sk-" + "hidden00" * 6,
    "eyJoiddenheader." + "hidden" * 9 + ".hidden-signature",
)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_in_a_text_of_a_caller_is_not_written(key):
    text = f"/v1/models/{key}/x?{key}"
    fields = {"path": text, "model": key, "user": text, "metadata": {key: text}, "endpoints": [key]}
    shown = io.BytesIO()
    logger = structlog.wrap_logger(structlog.BytesLogger(shown), logs.processors("json"))
    logger.info("request", **written(**fields))
    logger.warning("another line", request_id=key, where=text)
    assert "hidden" not in str(written(**fields))
    assert b"hidden" not in shown.getvalue()
    assert (b"sk-k3x9q27bt0mz-" in shown.getvalue()) is key.startswith("sk-k")


@pytest.mark.parametrize("text", ["sk-learn", "task-force-one", "a risk-averse-and-careful-man"])
def test_other_texts_stay(text):
    assert written(user=text) == {"user": text}


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("is_request", [True, False])
def test_no_text_of_a_caller_breaks_a_line_or_steers_a_terminal(form, is_request):
    stream = io.BytesIO() if form == "json" else io.StringIO()
    make = structlog.BytesLogger if form == "json" else structlog.PrintLogger
    logger = structlog.wrap_logger(
        make(stream), logs.processors(form), wrapper_class=logs.LeveledLogger
    )
    text = HOSTILE if is_request else HOSTILE.replace("\ud800", "")
    fields = {"path": text, "user": text, "metadata": {text: text}}
    logger.info("request", **(written(**fields) if is_request else fields))
    shown = stream.getvalue()
    line = shown.decode() if isinstance(shown, bytes) else shown
    assert line.count("\n") == 1
    colors = structlog.dev.ConsoleRenderer.get_default_level_styles().values()
    for each in (*colors, *vars(structlog.dev._ColorfulStyles).values()):
        line = line.replace(str(each), "") if form == "text" else line
    assert not {"\x1b", "\r", "\x00"} & set(line)
    assert form == "json" or line[:-1].isprintable()
    assert form == "text" or json.loads(line)["event"] == "request"
