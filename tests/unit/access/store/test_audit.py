"""audit: every change is in the chain, and the chain shows what was done to it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from proxy.access.store.audit_log import Verification
from proxy.access.store.audited_calls import AuditedCalls
from proxy.access.store.database import Database
from proxy.access.store.store import Store
from proxy.domain.errors import ErrorCode
from proxy.domain.identity import Caller, Limits, Scope
from tests.unit.access.store.samples import ACTOR, KEY, PEPPER, opened

pytestmark = pytest.mark.anyio

OTHER = Caller(tenant="acme", key_id="other", scopes=frozenset({Scope.CHAT}))
NO_SCOPE = ErrorCode.TENANT_EXISTS  # any code


async def filled(store: Store) -> str:
    """Six changes; returns all secrets and digests that were in play, in one text."""
    await store.tenants.create(ACTOR, "acme", limits=Limits(tokens_per_day=5))
    made = await store.keys.create(ACTOR, "acme", **KEY)
    key_id = made.record.id
    await store.keys.update(ACTOR, key_id, lambda key: replace(key, name="renamed"))
    rotated = await store.keys.rotate("cli:root", key_id, timedelta(hours=1))
    await store.keys.revoke(ACTOR, key_id)
    store.audited_calls.denied("GET", "/admin/v1/keys", OTHER, NO_SCOPE)
    store.audited_calls.denied("GET", "/admin/v1/keys", OTHER, NO_SCOPE)
    await store.audited_calls.flush()
    return " ".join((made.key, rotated.key, made.record.digest.hex(), rotated.record.digest.hex()))


async def test_each_change_and_each_denied_call_has_an_entry_without_secrets(store):
    secrets = await filled(store)
    entries = await store.audit.list()
    key = entries[1]["object"]
    assert [
        (entry["number"], entry["actor"], entry["action"], entry["object"]) for entry in entries
    ] == [
        (1, ACTOR, "tenants.create", "tenants/acme"),
        (2, ACTOR, "keys.create", key),
        (3, ACTOR, "keys.update", key),
        (4, "cli:root", "keys.rotate", key),
        (5, ACTOR, "keys.revoke", key),
        (6, "other", "denied", "GET /admin/v1/keys"),
    ]
    assert entries[0]["before"] is None
    assert entries[0]["after"]["limits"] == {"tokens_per_day": 5}
    before, after = entries[2]["before"], entries[2]["after"]
    assert {name for name in after if before[name] != after[name]} == {"name"}
    assert entries[3]["after"]["overlap_until"] is not None
    assert entries[5]["after"] == {"code": "tenant_exists", "times": 2}
    written = " ".join(str(entry) for entry in entries)
    for secret in secrets.split():
        assert secret not in written
        assert secret.split("-", 2)[-1][:20] not in written  # it may have a "-" itself


def verified(url: str, *statements: str, pepper: bytes = PEPPER) -> Verification:
    """What `verify` finds after somebody ran these statements in the database."""

    async def main() -> Verification:
        async with opened(url) as store:
            await filled(store)
        database = Database(url)
        async with database.writing() as connection:
            for statement in statements:
                await connection.execute(text(statement))
        await database.close()
        store = Store(url, pepper)
        try:
            return await store.audit.verify()
        finally:
            await store.close()

    return asyncio.run(main())


SWAP = (
    "UPDATE audit SET number = 0 WHERE number = 2",
    "UPDATE audit SET number = 2 WHERE number = 3",
    "UPDATE audit SET number = 3 WHERE number = 0",
)
SHORTENED = (
    "DELETE FROM audit WHERE number = 6",
    "UPDATE meta SET audit_entries = 5, audit_mac = (SELECT mac FROM audit WHERE number = 5)",
)


FORGED = (  # by somebody who can write the database, but has no pepper
    "INSERT INTO audit SELECT 7, at, actor, action, object, before, after, chain_key, mac "
    "FROM audit WHERE number = 6",
    "UPDATE meta SET audit_entries = 7",
)


@pytest.fixture
def sqlite(tmp_path) -> str:
    """Both databases keep the same entries: whoever changes them is found in the same way."""
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        (("UPDATE audit SET actor = 'nobody' WHERE number = 2",), "entry 2 is not what"),
        (("UPDATE audit SET object = 'x' WHERE number = 6",), "entry 6 is not what"),
        (("UPDATE audit SET before = NULL WHERE number = 3",), "entry 3 is not what"),
        (("UPDATE audit SET after = '{}' WHERE number = 3",), "entry 3 is not what"),
        (("UPDATE audit SET action = 'x' WHERE number = 1",), "entry 1 is not what"),
        (
            ("UPDATE audit SET at = '2020-01-01 00:00:00.000000' WHERE number = 2",),
            "entry 2 is not",
        ),
        (FORGED, "entry 7 is not what was written"),
        (("UPDATE audit SET mac = 'x' WHERE number = 4",), "entry 4 is not what"),
        (("DELETE FROM audit WHERE number = 3",), "entry 3 is missing"),
        (("DELETE FROM audit WHERE number = 1",), "entry 1 is missing"),
        (("DELETE FROM audit WHERE number IN (3, 4)",), "entries 3 to 4 are missing"),
        (("DELETE FROM audit WHERE number = 6",), "entry 6 is missing"),
        (("DELETE FROM audit",), "entries 1 to 6 are missing"),
        (SWAP, "entry 2 is not what was written, or not in its place"),
        (SHORTENED, "the count of entries, or the last MAC in `meta`, was changed"),
        (("UPDATE meta SET audit_head = ''",), "the count of entries, or the last MAC"),
        (("UPDATE meta SET audit_mac = 'x'",), "entry 6 is not the last that was written"),
        (("UPDATE meta SET audit_entries = 5",), "entries after 5 were not added by this"),
        (("DELETE FROM audit", "UPDATE meta SET audit_entries = 0"), "is not the last"),
        (("UPDATE audit SET chain_key = 'x' WHERE number = 2",), "with another pepper"),
    ],
)
def test_what_was_done_to_the_log_is_found(sqlite, statements, problem):
    found = verified(sqlite, *statements)
    assert not found.ok
    assert problem in found.problems[0]


def test_without_its_pepper_nothing_is_verified(sqlite):
    found = verified(sqlite, pepper=b"another")
    assert len(found.problems) == 7
    assert "OLD_KEY_PEPPERS" in found.problems[0]


async def test_writers_at_the_same_time_make_one_chain(url):
    writers, each = 6, 8

    async def write(number: int) -> None:
        async with opened(url) as store:
            for turn in range(each):
                await store.tenants.create(f"w{number}", f"t{number}-{turn}")
                caller = replace(OTHER, key_id=f"{turn}")
                store.audited_calls.denied("GET", "/x", caller, NO_SCOPE)
                await store.audited_calls.flush()

    async with opened(url) as store:
        start = await store.keys.generation()
        await asyncio.gather(*(write(number) for number in range(writers)))
        found = await store.audit.verify()
        assert (found.problems, found.entries) == ((), 2 * writers * each)
        assert await store.keys.generation() == start + writers * each


async def test_a_change_that_fails_leaves_no_entry(store):
    await filled(store)
    generation = await store.keys.generation()

    def broken(tenant):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.tenants.update(ACTOR, "acme", broken)
    assert await store.keys.generation() == generation
    found = await store.audit.verify()
    assert (found.ok, found.entries, len(found.mac)) == (True, 6, 64)


async def test_a_flood_of_denied_calls_makes_few_entries(store):
    for number in range(1000):
        caller = replace(OTHER, key_id=f"{number}\0")
        store.audited_calls.denied("GET", "/admin/\0" * 100, caller, NO_SCOPE)
    await store.audited_calls.flush()
    entries = await store.audit.list()
    assert len(entries) == 101
    assert sum(entry["after"]["times"] for entry in entries) == 1000
    assert max(len(entry["object"]) for entry in entries) == 200
    assert entries[-1]["actor"] == "several callers"


async def test_reads_are_one_entry_at_once_and_then_one_in_ten_minutes_with_their_number(store):
    second = 0
    calls = AuditedCalls(store.audit, clock=lambda: second)
    for second in range(1300):
        calls.read("poller", "usage")
        if second == 5:
            calls.read("admin", "keys")
        await calls.flush()
    async with calls:
        pass
    found = await store.audit.list()
    assert {(each["action"], each["before"]) for each in found} == {("read", None)}
    assert [(each["actor"], each["object"], each["after"]) for each in found] == [
        ("poller", "usage", {"times": 1}),
        ("admin", "keys", {"times": 1}),
        ("poller", "usage", {"times": 600}),
        ("poller", "usage", {"times": 600}),
        ("poller", "usage", {"times": 99}),
    ]


CALLERS = [OTHER, replace(OTHER, key_id="third"), None]
CODES = [ErrorCode.INSUFFICIENT_SCOPE, ErrorCode.KEY_REVOKED]


async def test_denied_calls_are_one_entry_of_a_caller_and_code_in_ten_minutes(store):
    """However many paths were asked for, and with all calls counted."""
    second, made = 0, 0
    calls = AuditedCalls(store.audit, clock=lambda: second)
    for second in range(1300):
        for caller in CALLERS:
            for code in CODES:
                calls.denied("GET", f"/admin/{second}", caller, code)
                made += 1
        await calls.flush()
    async with calls:
        pass
    found = await store.audit.list()
    assert len(found) == len(CALLERS) * len(CODES) * 4
    assert sum(each["after"]["times"] for each in found) == made
    for caller in CALLERS:
        actor = "nobody" if caller is None else caller.key_id
        for code in CODES:
            mine = [
                (each["object"], each["after"]["times"])
                for each in found
                if (each["actor"], each["after"]["code"]) == (actor, code.value)
            ]
            assert mine == [
                ("GET /admin/0", 1),
                ("GET /admin/1", 600),
                ("GET /admin/601", 600),
                ("GET /admin/1201", 99),
            ]
    assert (await store.audit.verify()).ok


async def test_many_denied_callers_have_few_entries_and_leave_reads_their_names(store):
    second = 0
    calls = AuditedCalls(store.audit, clock=lambda: second)
    for second in range(20):
        for number in range(50):
            key_id = f"{second}-{number}"
            calls.denied("GET", "/admin/x", replace(OTHER, key_id=key_id), NO_SCOPE)
        await calls.flush()
    calls.read("admin", "keys")
    await calls.flush()
    found = await store.audit.list()
    assert len(found) == 102
    assert [found[100]["actor"], found[101]["actor"]] == ["several callers", "admin"]
