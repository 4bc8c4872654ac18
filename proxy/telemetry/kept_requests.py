"""Whether a request may be kept: in the journal, in the log, in spans. Pure."""

from __future__ import annotations

from typing import Any

import orjson


def fields_of(body: bytes) -> dict[str, Any] | None:
    """The fields of a request's body; None: it is no JSON object."""
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def may_be_kept(fields: dict[str, Any]) -> bool:
    """Whether the caller lets the request be kept: `store` is not false."""
    return fields.get("store") is not False
