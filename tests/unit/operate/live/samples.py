"""A recorded request, and a console that keeps what is printed."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console


def stage(
    name: str,
    begin_ms: float,
    duration_ms: float,
    parent: int | None = None,
    error: str | None = None,
    **attributes: Any,
) -> dict[str, Any]:
    return {
        "name": name,
        "begin_ms": begin_ms,
        "duration_ms": duration_ms,
        "parent": parent,
        "error": error,
        "attributes": attributes,
    }


RECORD: dict[str, Any] = {
    "id": "req_6f1c",
    "answer_id": "chatcmpl-5f0c",
    "began_at": "2026-03-01T12:00:00.250+00:00",
    "method": "POST",
    "path": "/v1/chat/completions",
    "status": 200,
    "tenant": "acme[b]",
    "model": "demo",
    "finish": "stop",
    "prompt_tokens": 21,
    "cached_tokens": 16,
    "completion_tokens": 48,
    "ttft_ms": 331.4,
    "queue_ms": 100.0,
    "duration_ms": 800.0,
    "resent": 1,
    "stages": [
        stage("triton", 225.0, 575.0, endpoint="10.0.0.8:8001", tokens=48),
        stage("decode", 331.0, 469.0, 0),
        stage("prefill", 306.0, 25.0, 0),
        stage("queue", 4.0, 100.0),
        stage("triton", 104.0, 120.0, error="ModelUnavailable", endpoint="10.0.0.7:8001"),
        stage("routing", 104.0, 0.3, 4),
    ],
}


def console(width: int) -> Console:
    return Console(width=width, file=StringIO(), highlight=False, color_system=None)


def printed(console: Console) -> str:
    """What the console has printed, without the spaces at the ends of its lines."""
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
