"""administration: tenants and keys, over both adapters; what the authentication reads of them."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pytest

from proxy.access.store.records import IssuedKey
from proxy.access.store.store import Store
from proxy.access.store.usage import UsagePeriod
from proxy.domain.errors import Conflict, ErrorCode, LaunchError, RequestError, StoreUnavailable
from proxy.domain.identity import Limits, Scope
from tests.unit.access.store.samples import ACTOR, KEY, PEPPER, opened, used

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(store: Store) -> Store:
    """With the tenant `acme`."""
    await store.tenants.create(ACTOR, "acme")
    return store


async def test_a_key_is_stored_as_its_digest_and_times_in_utc_to_the_microsecond(store):
    far = timezone(timedelta(hours=5, minutes=30))
    expiry = datetime(2031, 5, 6, 1, 2, 3, 456789, tzinfo=far)
    made = await store.keys.create(ACTOR, "acme", **KEY, expires_at=expiry)
    assert re.fullmatch(r"sk-[a-z0-9]{12}-[A-Za-z0-9_-]{43}", made.key)
    found = await store.keys.key(made.record.id)
    assert found == made.record
    assert found.digest == hmac.new(PEPPER, made.key.encode(), hashlib.sha256).digest()
    assert {name: getattr(found, name) for name in KEY} == KEY
    assert (found.revoked_at, found.overlap_digest) == (None, None)
    assert (found.expires_at, found.expires_at.utcoffset()) == (expiry, timedelta(0))
    age = datetime.now(timezone.utc) - found.created_at
    assert timedelta(0) <= age < timedelta(minutes=1)


async def test_each_change_is_stored_as_it_is_returned_and_raises_the_generation(store):
    admin, before = store, await store.keys.generation()
    made = (await admin.keys.create(ACTOR, "acme", **KEY)).record
    limits = {"demo": Limits(requests_per_minute=3)}
    tenant = await admin.tenants.update(
        ACTOR, "acme", lambda each: replace(each, of_models=limits, weight=0.01, records=True)
    )
    assert await store.keys.tenant("acme") == tenant
    assert (tenant.of_models, tenant.weight, tenant.records) == (limits, 0.01, True)
    renamed = await admin.keys.update(
        ACTOR, made.id, lambda key: replace(key, name="other", max_priority=-5)
    )
    assert renamed == replace(made, name="other", max_priority=-5)
    assert await store.keys.key(made.id) == renamed
    rotated = (await admin.keys.rotate(ACTOR, made.id, timedelta(hours=2))).record
    assert rotated.digest != rotated.overlap_digest == made.digest
    assert timedelta(hours=1) < rotated.overlap_until - datetime.now(timezone.utc)
    assert await store.keys.key(made.id) == rotated
    again = (await admin.keys.rotate(ACTOR, made.id, timedelta(0))).record
    assert (again.overlap_digest, again.overlap_until) == (None, None)
    with pytest.raises(Conflict) as refused:
        await admin.tenants.delete(ACTOR, "acme")
    assert refused.value.code is ErrorCode.TENANT_HAS_KEYS
    assert made.id in refused.value.message
    revoked = await admin.keys.revoke(ACTOR, made.id)
    assert await admin.keys.list(tenant="acme") == [revoked]
    assert await admin.keys.revoke(ACTOR, made.id) == revoked  # which changes nothing
    await admin.tenants.delete(ACTOR, "acme")
    assert await store.keys.tenant("acme") is None
    assert await store.keys.key(made.id) is None
    assert await store.keys.generation() == before + 7
    store.audited_calls.denied("GET", "/a", None, ErrorCode.KEY_REVOKED)
    await store.audited_calls.flush()
    assert await store.keys.generation() == before + 7


async def test_any_text_is_a_name_that_nobody_has(store):
    admin = store
    for odd in ("none", "\0", "\ud800"):
        assert await store.keys.key(odd) is None
        assert await store.keys.tenant(odd) is None
        for call in (
            admin.keys.show(odd),
            admin.keys.revoke(ACTOR, odd),
            admin.keys.create(ACTOR, odd, **KEY),
            admin.tenants.show(odd),
        ):
            with pytest.raises(RequestError, match="There is no"):
                await call
    with pytest.raises(Conflict):
        await admin.tenants.create(ACTOR, "acme")
    assert len(await admin.audit.list()) == 1  # refused changes are no changes


async def test_the_first_key_is_made_once_and_never_after_a_change(url):
    def full(made: IssuedKey) -> None:
        raise LaunchError("the disk is full")

    async with opened(url) as store:
        with pytest.raises(LaunchError, match="full"):
            await store.keys.create_first(full)
        assert await store.keys.list(limit=None) == []
        kept: list[IssuedKey] = []
        made = await store.keys.create_first(kept.append)
        assert kept == [made]
        assert made is not None
        assert made.record.scopes == {Scope.ADMIN}
        assert await store.keys.create_first(lambda made: None) is None
        await store.keys.revoke(ACTOR, made.record.id)
        await store.tenants.delete(ACTOR, made.record.tenant)
        assert await store.keys.create_first(lambda made: None) is None
        assert (await store.audit.verify()).ok


async def test_another_pepper_is_refused_at_the_start(store, url):
    with pytest.raises(LaunchError, match="KEY_PEPPER is not the one"):
        async with opened(url, b"another"):
            pass
    async with opened(url, b"another", [PEPPER]) as later:
        await later.tenants.create(ACTOR, "beta")
        assert (await later.audit.verify()).ok


@pytest.mark.parametrize(
    "url", ["sqlite:////proc/none/store.db", "postgresql://nobody@127.0.0.1:1/none"]
)
async def test_a_store_that_cannot_be_reached_is_one_error(url):
    store = Store(url, PEPPER)
    for call in (
        store.prepare(),
        store.keys.generation(),
        store.keys.key("k"),
        store.tenants.create(ACTOR, "acme"),
    ):
        with pytest.raises(StoreUnavailable) as refused:
            await call
        assert refused.value.detail
    await store.close()


async def test_an_outage_loses_nothing(postgres_server):
    async with opened(postgres_server.create("outage")) as store:
        await store.decisions.drain("10.0.0.1:8001", actor=ACTOR)
        generation = await store.keys.generation()
        store.usage.add(used())
        postgres_server.stop()
        try:
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await store.keys.generation()
                with pytest.raises(StoreUnavailable):
                    await store.usage.flush()
                store.usage.add(used())
            store.audited_calls.denied("GET", "/a", None, ErrorCode.KEY_REVOKED)
            with pytest.raises(StoreUnavailable):
                await store.audited_calls.flush()
            with pytest.raises(StoreUnavailable):
                await store.decisions.drain("10.0.0.2:8001", actor=ACTOR)
            assert store.decisions.drained == {"10.0.0.1:8001"}
        finally:
            postgres_server.start()
        assert await store.keys.generation() == generation
        await store.usage.flush()
        march = UsagePeriod(first=date(2026, 3, 1), last=date(2026, 3, 31))
        (whole,) = await store.usage.report(march, by=())
        assert whole["requests"] == 3
        await store.audited_calls.flush()
        assert (await store.audit.list())[-1]["actor"] == "nobody"
        await store.decisions.undrain("10.0.0.1:8001", actor=ACTOR)
        assert store.decisions.drained == frozenset()
