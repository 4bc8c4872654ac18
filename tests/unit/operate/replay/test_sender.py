"""Which lines of a folder are sent again."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from proxy.operate.replay.sender import Selection

LINE = {
    "version": 1,
    "at": "2026-03-02T12:00:00Z",
    "tenant": "acme",
    "key_id": "k",
    "request_id": "req_1",
    "path": "/v1/chat/completions",
    "model": "demo",
    "body": "{}",
    "status": 200,
    "answer": "{}",
    "is_complete": True,
    "ttft_ms": 1.0,
    "duration_ms": 2.0,
}


def read(folder: Path, *lines: object, **chosen: object) -> tuple[list[str], int, int]:
    """request ids, how many were passed over, and how many cannot be read."""
    content = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    (folder / "2026-03-02.0a.jsonl").write_text(content)
    selection = Selection(**chosen)
    found = [each.request_id for each in selection.of(folder)]
    return found, selection.passed_over, selection.unreadable


@pytest.mark.parametrize(
    ("fields", "is_sent"),
    [
        ({}, True),
        ({"status": 400}, True),
        ({"status": 422}, True),
        ({"status": 401}, False),
        ({"status": 429}, False),
        ({"status": 503}, False),
        ({"status": None}, False),
        ({"is_complete": False}, False),
    ],
)
def test_what_depended_on_the_moment_is_not_sent(tmp_path, fields, is_sent):
    found = read(tmp_path, {**LINE, **fields})
    assert found == ((["req_1"], 0, 0) if is_sent else ([], 1, 0))


@pytest.mark.parametrize(
    "line",
    [
        '{"half":',
        "[]",
        {**LINE, "version": 2},
        {**LINE, "more": 1},
        {**LINE, "path": "http://another.host/v1/chat/completions"},
        {**LINE, "path": "//another.host/v1"},
        {**LINE, "path": "/v1/../admin"},
    ],
)
def test_lines_of_another_form_are_counted(tmp_path, line):
    assert read(tmp_path, line, "", LINE) == (["req_1"], 0, 1)


def test_tenant_model_and_time_choose(tmp_path):
    lines = [
        {**LINE, "request_id": "a", "tenant": "other"},
        {**LINE, "request_id": "b", "model": "large"},
        {**LINE, "request_id": "c", "at": "2026-03-02T11:59:59Z"},
        {**LINE, "request_id": "d"},
    ]
    noon = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)
    assert read(tmp_path, *lines, tenant="other")[0] == ["a"]
    assert read(tmp_path, *lines, model="large")[0] == ["b"]
    assert read(tmp_path, *lines, since=noon)[0] == ["a", "b", "d"]
    assert read(tmp_path, *lines, since=noon, tenant="acme", model="demo") == (["d"], 0, 0)
    later = datetime(2026, 3, 3, tzinfo=timezone.utc)
    assert read(tmp_path, "cut", since=later) == ([], 0, 0)
