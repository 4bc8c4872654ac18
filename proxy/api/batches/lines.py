"""The lines of a batch: what one asks for, and what is written of its answer.

The functions that parse run in the sandbox, except on lines that are cheap.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import orjson
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from proxy.api.http import json_shape
from proxy.api.http.json_shape import JsonLimits
from proxy.api.openai.field_types import Json
from proxy.domain.usage import UsageRow

FIELDS = {"custom_id", "method", "url", "body"}
LONGEST_ID = 512
LIMITS = JsonLimits()
# In strings of JSON alone; for Python's splitlines, each ends a line.
LINE_ENDS = {each.encode(): b"\\u%04x" % ord(each) for each in "\x85\u2028\u2029"}
HEAD_BYTES = 8_192  # of a kept answer, at most
_line = re.compile(rb"\S[^\n]*")
_ROW: TypeAdapter[UsageRow] = TypeAdapter(UsageRow)


@dataclass(frozen=True, slots=True)
class Line:
    """body: JSON. wants_stream: it asks for a stream, which a batch has not."""

    custom_id: str
    model: str | None
    wants_stream: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    code: str
    message: str
    param: str | None = None


def requests_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its offset. A mark of the encoding is blank."""
    for found in _line.finditer(data):
        if found[0].rstrip() != codecs.BOM_UTF8:
            yield found.start(), found[0]


def read(lines: Sequence[bytes], endpoint: str) -> list[Line | Fault]:
    return [_read(line, endpoint) for line in lines]


def checked(lines: Sequence[bytes], endpoint: str) -> list[tuple[bytes, str | None] | Fault]:
    """For each line, a digest of its custom_id, and its model; or what is wrong with the line."""
    return [
        each
        if isinstance(each, Fault)
        else (sha256(each.custom_id.encode()).digest()[:16], each.model)
        for each in read(lines, endpoint)
    ]


def _read(data: bytes, endpoint: str) -> Line | Fault:
    data = data.removeprefix(codecs.BOM_UTF8)
    if why := json_shape.fault(data, LIMITS):
        return Fault("invalid_json_line", f"This line {why}.")
    try:
        given = from_json(data, allow_inf_nan=False)  # orjson makes floats of large integers
    except ValueError as error:
        return Fault("invalid_json_line", f"This line is not parseable as JSON: {error}.")
    if not isinstance(given, dict):
        return Fault("invalid_json_line", "This line is not a JSON object.")
    if unknown := sorted(given.keys() - FIELDS):
        return Fault("unknown_parameter", f"Unknown field {unknown[0][:100]!r}.", unknown[0][:100])
    if missing := [name for name in sorted(FIELDS) if name not in given]:
        return Fault("missing_required_parameter", f"Missing field {missing[0]!r}.", missing[0])
    custom_id, url, body = given["custom_id"], given["url"], given["body"]
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= LONGEST_ID:
        message = f"custom_id must be a string of 1 to {LONGEST_ID} characters."
        return Fault("invalid_custom_id", message, "custom_id")
    if given["method"] != "POST":
        return Fault("invalid_method", "method must be POST.", "method")
    if url != endpoint:
        message = f"The URL provided for this request does not match the batch endpoint {endpoint}."
        return Fault("invalid_url", message, "url")
    if not isinstance(body, dict):
        return Fault("invalid_request", "body must be a JSON object.", "body")
    model = body.get("model")
    return Line(
        custom_id=custom_id,
        model=model if isinstance(model, str) and len(model) <= LONGEST_ID else None,
        wants_stream=bool(body.get("stream") or body.get("background")),
        body=to_json(body),
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one line. text: the line of the output or error file; empty for a line that was
    cancelled. row: what is charged.
    """

    has_failed: bool
    row: UsageRow | None
    text: bytes

    @property
    def outcome(self) -> str:
        if not self.text:
            return "cancelled"
        return "failed" if self.has_failed else "completed"

    def kept(self) -> bytes:
        head = {"failed": self.has_failed, "row": self.row}
        return orjson.dumps(head) + b"\n" + self.text


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a kept answer. has_text: a text follows it. size: in bytes."""

    has_failed: bool
    has_text: bool
    row: UsageRow | None
    size: int


def head_of(kept: bytes) -> Head:
    """kept: at least its first HEAD_BYTES."""
    end = kept.index(b"\n") + 1
    head = orjson.loads(kept[:end])
    row = (
        None
        if head["row"] is None
        else _ROW.validate_python({**head["row"], "at": datetime.fromisoformat(head["row"]["at"])})
    )
    return Head(head["failed"], len(kept) > end, row, end)


def text(
    id: str,
    custom_id: str,
    *,
    status: int = 0,
    request_id: str = "",
    body: bytes = b"",
    error: Json | None = None,
) -> bytes:
    """The line of the output or error file. body: JSON of the answer; none with `error`."""
    shown = b"null"
    if error is None:
        shown = b'{"status_code":%d,"request_id":%b,"body":%b}' % (
            status,
            orjson.dumps(request_id),
            body.replace(b"\n", b" "),  # between two tokens: JSON's strings have none
        )
    line = b'{"id":%b,"custom_id":%b,"response":%b,"error":%b}\n' % (
        orjson.dumps(id),
        orjson.dumps(custom_id),
        shown,
        orjson.dumps(error),
    )
    for end, escaped in LINE_ENDS.items():
        line = line.replace(end, escaped)
    return line
