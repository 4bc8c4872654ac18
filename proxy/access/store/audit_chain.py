"""The hash chain of the audit log: each entry's MAC covers the entry and the MAC before it.

An edited, deleted or moved entry breaks the chain where it was; the head, which has a MAC of its
own, shows entries that are missing at the end. Nothing here reads or writes.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import orjson

from proxy.access.store.pepper import ChainKey

LISTED_AT_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change, or one denied call. before, after: what was changed, as JSON; None: nothing.

    number: from 1, without gaps. chain_key: the id of the key that made `mac`.
    """

    number: int
    at: datetime
    actor: str
    action: str
    object: str
    before: str | None
    after: str | None
    chain_key: str
    mac: str = ""

    @property
    def content(self) -> bytes:
        """All but the MAC, in one unambiguous form."""
        return orjson.dumps(
            [
                self.number,
                self.at.isoformat(),
                self.actor,
                self.action,
                self.object,
                self.before,
                self.after,
                self.chain_key,
            ]
        )

    def chained(self, key: ChainKey, mac_before: str) -> str:
        """The MAC of this entry after the one with `mac_before`; "" before the first."""
        return key.mac(b"entry", mac_before.encode(), self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """How many entries there are, the last one's MAC, and a MAC over both."""

    entries: int
    chain_key: str
    mac: str
    seal: str

    @classmethod
    def sealed(cls, entries: int, mac: str, key: ChainKey) -> AuditHead:
        return cls(entries=entries, chain_key=key.id, mac=mac, seal=_seal(entries, mac, key))


def _seal(entries: int, mac: str, key: ChainKey) -> str:
    return key.mac(b"head", str(entries).encode(), mac.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """problems: at most 100, in the order of the entries; none if the log is as it was written."""

    entries: int
    mac: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class Verifier:
    """Takes the entries in order of their numbers, then the head."""

    keys: Mapping[str, ChainKey]
    _count: int = 0
    _mac: str = ""
    _problems: list[str] = field(default_factory=list)

    def add(self, entries: Iterable[AuditEntry]) -> None:
        for entry in entries:
            self._problems += self._faults(entry)
            self._count, self._mac = entry.number, entry.mac

    def _faults(self, entry: AuditEntry) -> Iterator[str]:
        expected = self._count + 1
        if entry.number < expected:
            yield f"entry {entry.number} does not belong to the log, which starts with 1"
        elif entry.number > expected:
            yield _missing(expected, entry.number - 1)
        elif (key := self.keys.get(entry.chain_key)) is None:
            yield (
                f"entry {entry.number} was made with another pepper (its chain key is "
                f"{entry.chain_key!r}): add that pepper to OLD_KEY_PEPPERS"
            )
        elif not hmac.compare_digest(entry.mac, entry.chained(key, self._mac)):
            yield f"entry {entry.number} is not what was written, or not in its place"

    def finish(self, head: AuditHead) -> Verification:
        self._problems += self._faults_of(head)
        return Verification(
            entries=self._count, mac=self._mac, problems=tuple(self._problems[:LISTED_AT_MOST])
        )

    def _faults_of(self, head: AuditHead) -> Iterator[str]:
        if head.entries > self._count:
            yield _missing(self._count + 1, head.entries)
        elif head.entries < self._count:
            yield f"entries after {head.entries} were not added by this program"
        elif not hmac.compare_digest(head.mac, self._mac):
            yield f"entry {head.entries} is not the last that was written"
        if head.entries == 0 == self._count and not head.seal:
            return  # a new store
        key = self.keys.get(head.chain_key)
        if key is None:
            yield (
                f"the head was made with another pepper (its chain key is {head.chain_key!r}): "
                "add that pepper to OLD_KEY_PEPPERS"
            )
        elif not hmac.compare_digest(head.seal, _seal(head.entries, head.mac, key)):
            yield "the count of entries, or the last MAC in `meta`, was changed"


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"entry {first} is missing"
    return f"entries {first} to {last} are missing"
