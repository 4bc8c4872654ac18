"""The request headers Idempotency-Key and Last-Event-ID."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from proxy.domain.errors import ErrorCode, InvalidRequest, echoed

KEY, LAST_EVENT_ID = "Idempotency-Key", "Last-Event-ID"
LONGEST_KEY = 255
LONGEST_EVENT_ID = 15
_NAMES = frozenset({KEY.lower().encode(), LAST_EVENT_ID.lower().encode()})
_PRINTABLE = re.compile(rf"[\x20-\x7e]{{1,{LONGEST_KEY}}}")
# A string of RFC 8941, as the IETF's draft wants it: \" and \\ stand for the second character.
_QUOTED = re.compile(r'"(?:[^"\\]|\\["\\])*"')
_EVENT_ID = re.compile(rf"[0-9]{{1,{LONGEST_EVENT_ID}}}")


@dataclass(frozen=True, slots=True)
class KeyHeaders:
    """after: the number of the last event that the client has received; 0 without one."""

    key: str
    after: int


def key_headers(headers: Iterable[tuple[bytes, bytes]]) -> KeyHeaders | None:
    """None without a key. The scan costs less than a microsecond.

    Raises:
        InvalidRequest: one of them is malformed, given twice, or Last-Event-ID has no key.
    """
    if _NAMES.isdisjoint([name for name, _ in headers]):
        return None
    key, event_id = _only(headers, KEY), _only(headers, LAST_EVENT_ID)
    if key is None:
        raise _invalid(
            LAST_EVENT_ID, f"{LAST_EVENT_ID} needs the {KEY} of the request that it continues."
        )
    return KeyHeaders(_key(key), 0 if event_id is None else _event_number(event_id))


def _only(headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
    wanted = name.lower().encode()
    found = {value.decode("latin-1").strip() for each, value in headers if each == wanted}
    if len(found) > 1:
        raise _invalid(name, f"The header {name} is given {len(found)} times: send one.")
    return next(iter(found), None)


def _key(given: str) -> str:
    key = given
    if given.startswith('"'):
        if not _QUOTED.fullmatch(given):
            raise _invalid(
                KEY, f"{KEY} begins with a quote, but is no quoted string: {echoed(given)}"
            )
        key = re.sub(r"\\(.)", r"\1", given[1:-1])
    if not _PRINTABLE.fullmatch(key):
        raise _invalid(
            KEY,
            f"{KEY} must have 1 to {LONGEST_KEY} printable ASCII characters (given: "
            f"{echoed(given)}, {len(key)} characters).",
        )
    return key


def _event_number(given: str) -> int:
    if not _EVENT_ID.fullmatch(given):
        raise _invalid(
            LAST_EVENT_ID,
            f"{LAST_EVENT_ID} must be the `id` of an event, a number of at most "
            f"{LONGEST_EVENT_ID} digits (given: {echoed(given)}).",
        )
    return int(given)


def _shown(given: str) -> str:
    return echoed(given)


def _invalid(name: str, message: str) -> InvalidRequest:
    return InvalidRequest(message, code=ErrorCode.INVALID_PARAMETER, param=name)
