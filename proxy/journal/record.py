"""One request with its answer, and the line of JSON that it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """body, answer: the bytes as they were sent; of a stream, all its events. No headers: they have
    keys. is_complete: the answer came to its end. first_byte_s: until its first byte, None without.
    """

    at: datetime
    tenant: str
    key_id: str
    request_id: str
    path: str
    body: bytes
    status: int | None
    answer: bytes
    is_complete: bool
    first_byte_s: float | None
    duration_s: float


def line_of(record: Record, fields: dict[str, Any]) -> bytes:
    """fields: of the record's body."""
    model, first_s = fields.get("model"), record.first_byte_s
    return orjson.dumps(
        {
            "version": VERSION,
            "at": record.at,
            "tenant": record.tenant,
            "key_id": record.key_id,
            "request_id": record.request_id,
            "path": record.path,
            "model": model if isinstance(model, str) else None,
            "body": record.body.decode("utf-8", "replace"),
            "status": record.status,
            "answer": record.answer.decode("utf-8", "replace"),
            "is_complete": record.is_complete,
            "ttft_ms": None if first_s is None else round(first_s * 1000, 1),
            "duration_ms": round(record.duration_s * 1000, 1),
        },
        option=orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE,
    )
