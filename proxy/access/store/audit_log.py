"""Changes of keys, tenants and operators' decisions, and the audit log that they leave.

Each is one transaction with its audit entry and a new generation.
The transaction first locks the row of `meta`, so that changes of all processes come one after the
other, and the chain has no forks: each entry's MAC covers the entry and the MAC before it. An
edited, deleted or moved entry breaks the chain where it was; the head in `meta`, which has a MAC of
its own, shows entries that are missing at the end.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import orjson
from sqlalchemy import insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.store.database import Database
from proxy.access.store.tables import AUDIT, META, as_json
from proxy.domain.errors import LaunchError

ROWS_AT_ONCE = 500  # the event loop computes their MACs in one go, in about 5 ms
CHAIN = b"triton-openai audit chain 1"
ID_CHARACTERS = 16
LISTED_AT_MOST = 100

View = Mapping[str, Any]
Entry = tuple[str, str, str, View | None, View | None]  # actor, action, object, before, after


class ChainKey:
    """The key of the audit log's MACs, derived from a pepper of keys. Each entry has its id,
    from which the key cannot be computed.
    """

    def __init__(self, pepper: bytes) -> None:
        self._secret = hmac.digest(pepper, CHAIN, "sha256")
        self.id = self.mac(b"id")[:ID_CHARACTERS]

    def mac(self, *parts: bytes) -> str:
        """HMAC-SHA256 in hex. Each part is preceded by its length, so that none can grow."""
        framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._secret, framed, "sha256").hex()

    def chained(self, entry: Mapping[str, Any], mac_before: str) -> str:
        """The MAC of an entry after the one with `mac_before`; "" before the first. entry: the
        columns of the table, in their order.
        """
        values = [
            value.isoformat() if isinstance(value, datetime) else value
            for name, value in entry.items()
            if name != "mac"
        ]
        return self.mac(b"entry", mac_before.encode(), orjson.dumps(values))

    def seal(self, entries: int, mac: str) -> str:
        """The head of the chain: the number of entries, and the MAC of the last one."""
        return self.mac(b"head", str(entries).encode(), mac.encode())


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
class Change:
    """One change in the making. is_first: nothing was ever changed in this store."""

    connection: AsyncConnection
    at: datetime
    is_first: bool
    recorded: list[tuple[str, str, View | None, View | None]] = field(default_factory=list)

    def record(
        self, action: str, object: str, *, before: View | None = None, after: View | None = None
    ) -> None:
        """Adds an audit entry. before, after: the object as an administrator sees it; None: none.

        object: such as `tenants/<name>` or `keys/<id>`. Equal views are not a change, and are not
        recorded.
        """
        if before != after:
            self.recorded.append((action, object, before, after))


class AuditLog:
    """Also implements domain.endpoints.AuditTrail. earlier: peppers that only verify entries."""

    def __init__(self, database: Database, pepper: bytes, earlier: Sequence[bytes]) -> None:
        self._database = database
        self._key = ChainKey(pepper)
        self._keys = {key.id: key for key in (self._key, *map(ChainKey, earlier))}

    @asynccontextmanager
    async def change(self, actor: str) -> AsyncIterator[Change]:
        """The body changes and records; entries and generation are written at its end.

        If the body raises, nothing is written.
        """
        async with self._database.writing() as connection:
            meta = await _locked(connection)
            change = Change(connection, _now(), is_first=meta.audit_entries == 0)
            yield change
            if change.recorded:
                entries = [(actor, *each) for each in change.recorded]
                generation = meta.generation + 1
                await self._append(connection, meta, change.at, entries, generation=generation)

    async def note(self, action: str, object: str, *, actor: str, details: View) -> None:
        """Records what changes nothing here: the generation stays."""
        await self.add([(actor, action, object, None, details)])

    async def add(self, entries: Sequence[Entry]) -> None:
        """Records several such entries at once."""
        async with self._database.writing() as connection:
            await self._append(connection, await _locked(connection), _now(), entries)

    async def list(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 1000,
        is_newest_first: bool = False,
    ) -> Sequence[Mapping[str, Any]]:
        """At most `limit` entries, the oldest or the newest first, of those whose numbers are above
        `after`, and below `before`.

        Each is one change, or one denied call, as JSON has it: its `number` counts from 1, without
        gaps; its `before` and `after` are the object, None where there was none; `chain_key` is the
        id of the key that made `mac`.
        """
        number = AUDIT.c.number
        chosen = select(AUDIT).where(number > after).limit(limit)
        if before is not None:
            chosen = chosen.where(number < before)
        chosen = chosen.order_by(number.desc() if is_newest_first else number)
        async with self._database.reading() as connection:
            found = await connection.execute(chosen)
            return [_shown(dict(row)) for row in found.mappings()]

    async def verify(self) -> Verification:
        """Whether each entry is as it was written, in its place, and none is missing."""
        count, mac = 0, ""
        problems: list[str] = []
        async with self._database.reading() as connection:
            meta = (await connection.execute(select(META))).one()
            found = await connection.stream(select(AUDIT).order_by(AUDIT.c.number))
            async for part in found.mappings().partitions(ROWS_AT_ONCE):
                for entry in map(dict, part):
                    problems += self._faults(entry, count, mac)
                    count, mac = entry["number"], entry["mac"]
        problems += self._faults_of_head(meta, count, mac)
        return Verification(entries=count, mac=mac, problems=tuple(problems[:LISTED_AT_MOST]))

    async def check_pepper(self) -> None:
        """Raises LaunchError: the store was written with another pepper."""
        async with self._database.reading() as connection:
            meta = (await connection.execute(select(META))).one()
        if meta.audit_entries and meta.audit_chain_key not in self._keys:
            raise LaunchError(
                f"KEY_PEPPER is not the one with which the keys in {self._database.name} were "
                "made, so none of them would be accepted: set that one. To change it for good, put "
                "the earlier one into OLD_KEY_PEPPERS and rotate every key"
            )

    async def _append(
        self,
        connection: AsyncConnection,
        meta: Row[Any],
        at: datetime,
        entries: Sequence[Entry],
        **counts: int,
    ) -> None:
        """Adds the entries to the chain. counts: other columns of `meta`."""
        number, mac = meta.audit_entries, meta.audit_mac
        for actor, action, object, before, after in entries:
            number += 1
            entry = {
                "number": number,
                "at": at,
                "actor": actor,
                "action": action,
                "object": object,
                "before": _json(before),
                "after": _json(after),
                "chain_key": self._key.id,
            }
            mac = self._key.chained(entry, mac)
            await connection.execute(insert(AUDIT).values(**entry, mac=mac))
        columns = {
            "audit_entries": number,
            "audit_chain_key": self._key.id,
            "audit_mac": mac,
            "audit_head": self._key.seal(number, mac),
        }
        await connection.execute(update(META).values(**columns, **counts))

    def _faults(self, entry: Mapping[str, Any], count: int, mac: str) -> Iterator[str]:
        """count, mac: of the entries before."""
        number, chain_key = entry["number"], entry["chain_key"]
        if number <= count:
            yield f"entry {number} does not belong to the log, which starts with 1"
        elif number > count + 1:
            yield _missing(count + 1, number - 1)
        elif (key := self._keys.get(chain_key)) is None:
            yield (
                f"entry {number} was made with another pepper (its chain key is {chain_key!r}): "
                "add that pepper to OLD_KEY_PEPPERS"
            )
        elif not hmac.compare_digest(entry["mac"], key.chained(entry, mac)):
            yield f"entry {number} is not what was written, or not in its place"

    def _faults_of_head(self, meta: Row[Any], count: int, mac: str) -> Iterator[str]:
        """count, mac: of all entries."""
        entries = meta.audit_entries
        if entries > count:
            yield _missing(count + 1, entries)
        elif entries < count:
            yield f"entries after {entries} were not added by this program"
        elif not hmac.compare_digest(meta.audit_mac, mac):
            yield f"entry {entries} is not the last that was written"
        if entries == 0 == count and not meta.audit_head:
            return  # a new store
        key = self._keys.get(meta.audit_chain_key)
        if key is None:
            yield (
                f"the head was made with another pepper (its chain key is "
                f"{meta.audit_chain_key!r}): add that pepper to OLD_KEY_PEPPERS"
            )
        elif not hmac.compare_digest(meta.audit_head, key.seal(entries, meta.audit_mac)):
            yield "the count of entries, or the last MAC in `meta`, was changed"


async def _locked(connection: AsyncConnection) -> Row[Any]:
    """The row of `meta`; no other change gets it before this transaction ends."""
    return (await connection.execute(select(META).with_for_update())).one()


def _json(view: View | None) -> str | None:
    return None if view is None else orjson.dumps(view, option=orjson.OPT_SORT_KEYS).decode()


def _shown(entry: Mapping[str, Any]) -> dict[str, Any]:
    views = {name: _loaded(entry[name]) for name in ("before", "after")}
    return {**{str(name): as_json(value) for name, value in entry.items()}, **views}


def _loaded(view: str | None) -> Any:
    """The object; the text itself where somebody has changed it into something else."""
    if view is None:
        return None
    try:
        found = orjson.loads(view)
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": view}


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"entry {first} is missing"
    return f"entries {first} to {last} are missing"
