"""The requests that ended last, in the memory of this process: what each was, and its stages.

Implements request_log.RecordReader. Kept are the fields of the log line without what the caller
says of itself, and the attributes that are listed here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import orjson

from proxy.domain.record import RequestRecord
from proxy.telemetry.request_log import Line

NOT_KEPT = frozenset({"id", "user", "safety_identifier", "metadata", "without_effect", "stages_ms"})
ATTRIBUTES = frozenset(
    {
        "endpoint",
        "pool",
        "model",
        "deployment",
        "attempt",
        "tool",
        "round",
        "cause",
        "outcome",
        "policy",
        "position",
        "tokens",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
    }
)
LONGEST_TEXT = 200  # characters of an attribute
STAGES_BYTES = 16_384  # of one request; if attributes make them larger, these are dropped
UNKNOWN_CALLER = 401  # not kept: strangers could push out everything else
UNWATCHED = ("/health", "/ping", "/admin/")  # paths: watching must not push out what is watched
MICRO, NANO = 1e6, 1e9

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRequest:
    """ids: of the request and of its answer. stages: as JSON, which needs less memory."""

    ids: tuple[str, ...]
    fields: Fields
    stages: bytes


class RecentRequests:
    """most: how many are kept; 0: none."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self._kept: deque[KeptRequest] = deque()
        self._by_id: dict[str, KeptRequest] = {}

    def ended(self, record: RequestRecord, line: Line) -> None:
        if not self.most or not record.request_id or not _matters(record, line):
            return
        if len(self._kept) == self.most:
            oldest = self._kept.popleft()
            for name in oldest.ids:
                if self._by_id.get(name) is oldest:
                    del self._by_id[name]
        ids = (record.request_id, line["id"]) if "id" in line else (record.request_id,)
        kept = KeptRequest(ids=ids, fields=_fields(record, line), stages=_stages(record))
        self._kept.append(kept)
        self._by_id.update(dict.fromkeys(ids, kept))

    def find(self, request_id: str) -> Fields | None:
        """request_id: of the header `x-request-id`, or the answer's `id`. Of several requests with
        one id, the last.
        """
        kept = self._by_id.get(request_id)
        return None if kept is None else {**kept.fields, "stages": orjson.loads(kept.stages)}

    def last(
        self,
        limit: int,
        *,
        min_ms: float | None = None,
        failed: bool | None = None,
        **of: str | None,
    ) -> list[Fields]:
        """Those that match, without their stages, newest first. None: any. of: fields by name."""
        matching = (
            kept.fields
            for kept in reversed(self._kept)
            if all(each is None or kept.fields.get(name) == each for name, each in of.items())
            and (min_ms is None or kept.fields["duration_ms"] >= min_ms)
            and (failed is None or ("error" in kept.fields) is failed)
        )
        return list(islice(matching, limit))


def _matters(record: RequestRecord, line: Line) -> bool:
    """Whether it asked something of a model, or failed."""
    if record.status == UNKNOWN_CALLER or record.path.startswith(UNWATCHED):
        return False
    return "model" in line or "error" in line


def _fields(record: RequestRecord, line: Line) -> Fields:
    began = datetime.fromtimestamp(record.began_ns / NANO, timezone.utc)
    found: Fields = {"id": record.request_id, "began_at": began.isoformat(timespec="milliseconds")}
    if "id" in line:
        found["answer_id"] = line["id"]
    found.update({name: value for name, value in line.items() if name not in NOT_KEPT})
    if record.dropped:
        found["dropped_stages"] = record.dropped
    return found


def _stages(record: RequestRecord) -> bytes:
    """A JSON array, made at once: every request pays for it."""
    places = {id(stage): place for place, stage in enumerate(record.stages)}
    found: list[Fields] = [
        {
            "name": stage.name,
            "begin_ms": int((stage.began - record.began) * MICRO) / 1000,
            "duration_ms": int(stage.duration_s * MICRO) / 1000,
            "parent": None if stage.parent is None else places.get(id(stage.parent)),
            "error": stage.error,
            "attributes": _attributes(stage.attributes) if stage.attributes else {},
        }
        for stage in record.stages
    ]
    with suppress(orjson.JSONEncodeError):  # a text that is not Unicode must not fail the request
        if len(written := orjson.dumps(found)) <= STAGES_BYTES:
            return written
    return orjson.dumps([{**stage, "attributes": {}} for stage in found])


def _attributes(given: Mapping[str, Any]) -> Fields:
    return {name: _cut(given[name]) for name in ATTRIBUTES.intersection(given)}


def _cut(value: object) -> str | float | bool | None:
    """A value of bounded size, which JSON has."""
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    return str(value)[:LONGEST_TEXT]
