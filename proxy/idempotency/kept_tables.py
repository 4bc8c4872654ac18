"""Claims and kept answers in a SQLite file that several processes share. Blocks: `file_records`
calls it in a thread.

An answer's bytes are in pages, so that a reader holds one of them at a time.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_openai.proxy.idempotency.answer import AnswerLost, Head, JoinRefused, Reason
from triton_openai.proxy.idempotency.port import Elsewhere, Found, Kept, Mine
from triton_openai.proxy.idempotency.quotas import Quotas
from triton_openai.proxy.idempotency.request import KeyedRequest

PAGE_BYTES = 65_536
BUSY_S = 30.0  # how long a process waits while others write: longer than a busy machine makes it
OPEN_AGAIN_S = 0.01
OVERHEAD_BYTES = 512  # of a record, beside its parts
EXPIRED_AT_ONCE = 200
SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    id BLOB PRIMARY KEY, tenant BLOB NOT NULL, body BLOB NOT NULL, token TEXT NOT NULL,
    owner TEXT NOT NULL, head BLOB, parts INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0, expires REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_expiry ON records (expires);
CREATE INDEX IF NOT EXISTS by_tenant ON records (tenant, expires) WHERE head IS NOT NULL;
CREATE TABLE IF NOT EXISTS pages (
    id BLOB NOT NULL, number INTEGER NOT NULL, first INTEGER NOT NULL,
    parts INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (id, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tenants (
    tenant BLOB PRIMARY KEY, answers INTEGER NOT NULL, bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_bytes ON tenants (bytes);
CREATE TABLE IF NOT EXISTS total (one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL);
INSERT OR IGNORE INTO total VALUES (1, 0);
"""


@dataclass(frozen=True, slots=True)
class Page:
    """Whole parts of an answer, joined. first: how many stand before it. parts: how many it has."""

    first: int
    parts: int
    data: bytes


class KeptTables:
    """path: None for a file without a name, which ends with the process. is_durable: the file must
    survive a crash of the machine. For one thread.
    """

    def __init__(self, path: Path | None, quotas: Quotas, *, is_durable: bool = False) -> None:
        self._quotas = quotas
        if path is not None:
            path.touch(mode=0o600)
        self._db = sqlite3.connect(
            "" if path is None else path, timeout=BUSY_S, isolation_level=None
        )
        try:
            if path is None:
                self._db.execute("PRAGMA journal_mode = MEMORY")
            else:
                self._use_wal()
            self._db.execute(f"PRAGMA synchronous = {'NORMAL' if is_durable else 'OFF'}")
            self._db.execute("PRAGMA secure_delete = ON")
            self._db.execute("PRAGMA cache_size = -2000")
            self._db.executescript(SCHEMA)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def claim(
        self, request: KeyedRequest, token: str, owner: str, dead: str | None, now: float
    ) -> Found:
        """As port.Records."""
        with self._transaction():
            row = self._db.execute(
                "SELECT body, token, owner, head, parts, expires FROM records WHERE id = ?",
                (request.id,),
            ).fetchone()
            if row is not None:
                body, other, other_owner, head, parts, expires = row
                if head is None and other != dead:
                    return Elsewhere(other_owner, other)
                if head is not None and expires > now:
                    if body != request.body:
                        raise JoinRefused(Reason.OTHER_BODY)
                    return Kept(Head.of_json(head), parts, other)
                self._remove(request.id)
            self._db.execute(
                "INSERT INTO records (id, tenant, body, token, owner, expires)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (*(request.id, request.tenant, request.body, token, owner), now + self._claim_s),
            )
            return Mine(token)

    def keep(
        self, request: KeyedRequest, token: str, head: Head, parts: Sequence[bytes], now: float
    ) -> None:
        """Does nothing where the claim was taken over."""
        size = OVERHEAD_BYTES + sum(map(len, parts))
        with self._transaction():
            changed = self._db.execute(
                "UPDATE records SET head = ?, parts = ?, bytes = ?, expires = ?"
                " WHERE id = ? AND token = ? AND head IS NULL",
                (head.as_json(), len(parts), size, now + self._quotas.keep_s, request.id, token),
            )
            if not changed.rowcount:
                return
            self._db.executemany(
                "INSERT INTO pages VALUES (?, ?, ?, ?, ?)",
                (
                    (request.id, number, page.first, page.parts, page.data)
                    for number, page in enumerate(_pages(parts))
                ),
            )
            self._db.execute(
                "INSERT INTO tenants VALUES (?, 1, ?) ON CONFLICT (tenant) DO UPDATE"
                " SET answers = answers + 1, bytes = bytes + excluded.bytes",
                (request.tenant, size),
            )
            self._db.execute("UPDATE total SET bytes = bytes + ?", (size,))
            self._make_room(request.tenant)

    def release(self, request: KeyedRequest, token: str) -> None:
        self._db.execute(
            "DELETE FROM records WHERE id = ? AND token = ? AND head IS NULL", (request.id, token)
        )

    def page(self, request: KeyedRequest, token: str, after: int) -> Page:
        """The page with the part that follows so many.

        Raises:
            AnswerLost: the answer was removed meanwhile.
        """
        found = self._db.execute(
            "SELECT first, pages.parts, data FROM pages JOIN records USING (id)"
            " WHERE id = ? AND token = ? AND first <= ? ORDER BY number DESC LIMIT 1",
            (request.id, token, after),
        ).fetchone()
        if found is None:
            raise AnswerLost
        return Page(*found)

    def stored_bytes(self) -> int:
        return int(self._db.execute("SELECT bytes FROM total").fetchone()[0])

    def remove_expired(self, now: float) -> bool:
        """Removes some of what has expired; whether there may be more."""
        with self._transaction():
            expired = self._db.execute(
                "SELECT id FROM records WHERE expires <= ? LIMIT ?", (now, EXPIRED_AT_ONCE)
            ).fetchall()
            for (one,) in expired:
                self._remove(one)
        return len(expired) == EXPIRED_AT_ONCE

    def _use_wal(self) -> None:
        """Of processes that open a new file at once, SQLite refuses all but one: it does not wait
        for this change, whatever the timeout.
        """
        ends_at = time.monotonic() + BUSY_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > ends_at:
                    raise
                time.sleep(OPEN_AGAIN_S)
            else:
                return

    @property
    def _claim_s(self) -> float:
        """Until a claim that nobody asks for is removed; who asks sees whether its owner lives."""
        return max(self._quotas.keep_s, 86_400.0)

    def _make_room(self, tenant: bytes) -> None:
        """Removes the tenant's oldest answers beyond its number; then the oldest of whichever
        tenant has most bytes, so that none pushes another's out.
        """
        while self._answers(tenant) > self._quotas.answers:
            self._remove_oldest(tenant)
        while self.stored_bytes() > self._quotas.bytes:
            (largest,) = self._db.execute(
                "SELECT tenant FROM tenants ORDER BY bytes DESC LIMIT 1"
            ).fetchone()
            self._remove_oldest(largest)

    def _answers(self, tenant: bytes) -> int:
        row = self._db.execute("SELECT answers FROM tenants WHERE tenant = ?", (tenant,)).fetchone()
        return 0 if row is None else int(row[0])

    def _remove_oldest(self, tenant: bytes) -> None:
        (oldest,) = self._db.execute(
            "SELECT id FROM records WHERE tenant = ? AND head IS NOT NULL ORDER BY expires LIMIT 1",
            (tenant,),
        ).fetchone()
        self._remove(oldest)

    def _remove(self, one: bytes) -> None:
        tenant, size, is_kept = self._db.execute(
            "SELECT tenant, bytes, head IS NOT NULL FROM records WHERE id = ?", (one,)
        ).fetchone()
        self._db.execute("DELETE FROM pages WHERE id = ?", (one,))
        self._db.execute("DELETE FROM records WHERE id = ?", (one,))
        if is_kept:
            self._db.execute("UPDATE total SET bytes = bytes - ?", (size,))
            self._db.execute(
                "UPDATE tenants SET answers = answers - 1, bytes = bytes - ? WHERE tenant = ?",
                (size, tenant),
            )
            self._db.execute("DELETE FROM tenants WHERE tenant = ? AND answers = 0", (tenant,))

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)


class _Transaction:
    """Takes the lock for writing at once, so that what is read stays true until the commit."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._db.execute("COMMIT" if error is None else "ROLLBACK")


def _pages(parts: Sequence[bytes]) -> Iterator[Page]:
    """Of about PAGE_BYTES each."""
    page: list[bytes] = []
    first = size = 0
    for at, part in enumerate(parts):
        if page and size + len(part) > PAGE_BYTES:
            yield Page(first, len(page), b"".join(page))
            page, first, size = [], at, 0
        page.append(part)
        size += len(part)
    if page:
        yield Page(first, len(page), b"".join(page))
