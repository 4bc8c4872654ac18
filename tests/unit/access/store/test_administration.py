"""administration: tenants and keys, over both adapters; what the authentication reads of them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from proxy.access.store.pepper import Peppers
from proxy.access.store.store import Store
from proxy.domain.errors import Conflict, ErrorCode, NotStored, StoreUnavailable
from proxy.domain.identity import Limits, ModelPatterns, Scope
from proxy.processes.errors import LaunchError
from tests.unit.access.store.samples import ACTOR, LIMITS, ORDER, PEPPERS, opened

Use = Callable[[Store], Awaitable[None]]


def use(url: str, body: Use) -> None:
    async def main() -> None:
        async with opened(url) as store:
            await store.administration.tenants.create(ACTOR, "acme")
            await body(store)

    asyncio.run(main())


def test_a_key_is_stored_as_its_digest_only(url):
    async def body(store: Store) -> None:
        made = await store.administration.keys.create(ACTOR, ORDER)
        assert re.fullmatch(r"sk-[a-z0-9]{12}-[A-Za-z0-9_-]{43}", made.key)
        found = await store.keys.key(made.record.id)
        assert found == made.record
        digest = hmac.new(PEPPERS.today, made.key.encode(), hashlib.sha256).digest()
        assert found.digest == digest
        assert found.limits == LIMITS
        assert found.models == ModelPatterns(patterns=("llama-*", "demo"))
        assert found.scopes == {Scope.CHAT, Scope.MODELS}
        assert (found.expires_at, found.revoked_at, found.overlap_digest) == (None, None, None)
        age = datetime.now(timezone.utc) - found.created_at
        assert timedelta(0) <= age < timedelta(minutes=1)

    use(url, body)


def test_times_keep_their_microseconds_and_are_in_utc(url):
    async def body(store: Store) -> None:
        far = timezone(timedelta(hours=5, minutes=30))
        expiry = datetime(2031, 5, 6, 1, 2, 3, 456789, tzinfo=far)
        made = await store.administration.keys.create(ACTOR, replace(ORDER, expires_at=expiry))
        found = await store.keys.key(made.record.id)
        assert found is not None
        assert found.expires_at == expiry
        assert found.expires_at.utcoffset() == timedelta(0)

    use(url, body)


def test_a_rotated_key_has_both_digests_until_the_overlap_is_over(url):
    async def body(store: Store) -> None:
        keys = store.administration.keys
        first = await keys.create(ACTOR, ORDER)
        second = await keys.rotate(ACTOR, first.record.id, timedelta(hours=2))
        assert second.key != first.key
        found = await store.keys.key(first.record.id)
        assert found is not None
        assert found.digest == second.record.digest != first.record.digest
        assert found.overlap_digest == first.record.digest
        left = found.overlap_until - datetime.now(timezone.utc)
        assert timedelta(minutes=119) < left <= timedelta(hours=2)
        third = await keys.rotate(ACTOR, first.record.id, timedelta(0))
        assert (third.record.overlap_digest, third.record.overlap_until) == (None, None)

    use(url, body)


def test_a_revoked_key_stays_revoked(url):
    async def body(store: Store) -> None:
        keys = store.administration.keys
        made = await keys.create(ACTOR, ORDER)
        await keys.rotate(ACTOR, made.record.id, timedelta(hours=1))
        revoked = await keys.revoke(ACTOR, made.record.id)
        assert revoked.revoked_at is not None
        assert revoked.overlap_digest is None
        before = await store.keys.generation()
        assert await keys.revoke(ACTOR, made.record.id) == revoked
        assert await store.keys.generation() == before
        for forbidden in (
            keys.rotate(ACTOR, made.record.id, timedelta(0)),
            keys.update(ACTOR, made.record.id, lambda key: replace(key, revoked_at=None)),
        ):
            with pytest.raises(Conflict) as refused:
                await forbidden
            assert refused.value.code is ErrorCode.KEY_REVOKED

    use(url, body)


def test_updates_change_only_what_they_name(url):
    async def body(store: Store) -> None:
        admin = store.administration
        made = await admin.keys.create(ACTOR, ORDER)
        renamed = await admin.keys.update(
            ACTOR, made.record.id, lambda key: replace(key, name="other")
        )
        assert renamed == replace(made.record, name="other")
        assert await store.keys.key(made.record.id) == renamed
        limits = {"demo": Limits(requests_per_minute=3)}
        tenant = await admin.tenants.update(
            ACTOR, "acme", lambda tenant: replace(tenant, of_models=limits, is_active=False)
        )
        assert await store.keys.tenant("acme") == tenant
        assert (tenant.of_models, tenant.is_active) == (limits, False)

    use(url, body)


def test_weight_and_ceilings_are_kept_and_seen_in_the_audit_log(url):
    async def body(store: Store) -> None:
        admin = store.administration
        first = await store.keys.tenant("acme")
        assert (first.weight, first.max_priority) == (1.0, None)
        made = await admin.tenants.create(ACTOR, "batch", weight=0.01, max_priority=-5)
        assert await store.keys.tenant("batch") == made
        assert (made.weight, made.max_priority) == (0.01, -5)
        key = (await admin.keys.create(ACTOR, replace(ORDER, max_priority=7))).record
        assert (await store.keys.key(key.id)).max_priority == 7
        before = await store.keys.generation()
        changed = await admin.tenants.update(
            ACTOR, "batch", lambda each: replace(each, weight=1000.0, max_priority=None)
        )
        key = await admin.keys.update(ACTOR, key.id, lambda each: replace(each, max_priority=-1))
        assert await store.keys.generation() == before + 2
        assert await store.keys.tenant("batch") == changed
        assert await store.keys.key(key.id) == key
        views = [json.loads(entry.after) for entry in await admin.audit.list()][-2:]
        assert (views[0]["weight"], views[0]["max_priority"]) == (1000.0, None)
        assert views[1]["max_priority"] == -1

    use(url, body)


def test_each_change_raises_the_generation_and_nothing_else_does(url):
    async def body(store: Store) -> None:
        admin, seen = store.administration, [await store.keys.generation()]
        made = await admin.keys.create(ACTOR, ORDER)
        key_id = made.record.id
        for change in (
            admin.keys.update(ACTOR, key_id, lambda key: replace(key, name="b")),
            admin.keys.rotate(ACTOR, key_id, timedelta(0)),
            admin.keys.revoke(ACTOR, key_id),
            admin.tenants.update(ACTOR, "acme", lambda each: replace(each, is_active=False)),
            admin.tenants.delete(ACTOR, "acme"),
        ):
            seen.append(await store.keys.generation())
            await change
        seen.append(await store.keys.generation())
        assert seen == [*range(seen[0], seen[0] + 7)]
        await admin.keys.list()
        await admin.audit.verify()
        store.denied_calls.add("GET", "/a", None, ErrorCode.KEY_REVOKED)
        await store.denied_calls.flush()
        assert await store.keys.generation() == seen[-1]

    use(url, body)


def test_lists_go_on_after_a_name_or_an_id(url):
    async def body(store: Store) -> None:
        admin = store.administration
        for name in ("beta", "gamma"):
            await admin.tenants.create(ACTOR, name)
        assert [each.name for each in await admin.tenants.list(limit=2)] == ["acme", "beta"]
        assert [each.name for each in await admin.tenants.list(after="beta")] == ["gamma"]
        made = [(await admin.keys.create(ACTOR, ORDER)).record.id for _ in range(3)]
        await admin.keys.create(ACTOR, replace(ORDER, tenant="beta"))
        first, second, third = sorted(made)
        found = await admin.keys.list(tenant="acme", after=first, limit=5)
        assert [key.id for key in found] == [second, third]
        assert len(await admin.keys.list()) == 4

    use(url, body)


def test_a_tenant_with_keys_is_not_deleted_one_without_is_with_its_revoked_keys(url):
    async def body(store: Store) -> None:
        admin = store.administration
        made = await admin.keys.create(ACTOR, ORDER)
        with pytest.raises(Conflict) as refused:
            await admin.tenants.delete(ACTOR, "acme")
        assert refused.value.code is ErrorCode.TENANT_HAS_KEYS
        assert made.record.id in refused.value.message
        await admin.keys.revoke(ACTOR, made.record.id)
        await admin.tenants.delete(ACTOR, "acme")
        assert await store.keys.tenant("acme") is None
        assert await store.keys.key(made.record.id) is None

    use(url, body)


def test_what_is_not_there_or_there_already(url):
    async def body(store: Store) -> None:
        admin = store.administration
        refusals = {
            ErrorCode.TENANT_EXISTS: admin.tenants.create(ACTOR, "acme"),
            ErrorCode.TENANT_NOT_FOUND: admin.keys.create(ACTOR, replace(ORDER, tenant="none")),
            ErrorCode.KEY_NOT_FOUND: admin.keys.revoke(ACTOR, "none"),
        }
        for code, call in refusals.items():
            with pytest.raises((Conflict, NotStored)) as refused:
                await call
            assert refused.value.code is code
        with pytest.raises(NotStored):
            await admin.tenants.show("none")
        with pytest.raises(NotStored):
            await admin.keys.show("none")
        for odd in ("\0", "\ud800"):
            assert await store.keys.key(odd) is None
            assert await store.keys.tenant(odd) is None
            with pytest.raises(NotStored):
                await admin.keys.show(odd)
            with pytest.raises(NotStored):
                await admin.tenants.show(odd)
        assert await store.keys.key("none") is None
        assert await store.keys.tenant("none") is None
        assert len(await admin.audit.list()) == 1  # refused changes are no changes

    use(url, body)


def test_the_first_key_is_made_once_and_never_after_a_change(url):
    async def main() -> None:
        async with opened(url) as store:
            made = await store.create_first_key()
            assert made is not None
            assert made.record.scopes == {Scope.ADMIN}
            assert await store.create_first_key() is None
            await store.administration.keys.revoke(ACTOR, made.record.id)
            await store.administration.tenants.delete(ACTOR, made.record.tenant)
            assert await store.create_first_key() is None
            assert (await store.administration.audit.verify()).ok

    asyncio.run(main())


def test_another_pepper_is_refused_at_the_start(url):
    async def body(store: Store) -> None:
        with pytest.raises(LaunchError, match="KEY_PEPPER is not the one"):
            async with opened(url, Peppers(b"another")):
                pass
        async with opened(url, Peppers(b"another", (PEPPERS.today,))) as later:
            await later.administration.tenants.create(ACTOR, "beta")
            assert (await later.administration.audit.verify()).ok

    use(url, body)


@pytest.mark.parametrize(
    "url", ["sqlite:////proc/none/store.db", "postgresql://nobody@127.0.0.1:1/none"]
)
def test_a_store_that_cannot_be_reached_is_one_error(url):
    async def main() -> None:
        store = Store(url, PEPPERS)
        for call in (
            store.prepare(),
            store.keys.generation(),
            store.keys.key("k"),
            store.administration.tenants.create(ACTOR, "acme"),
        ):
            with pytest.raises(StoreUnavailable) as refused:
                await call
            assert refused.value.detail
        await store.close()

    asyncio.run(main())


def test_the_store_is_used_again_after_an_outage(postgres_server):
    async def main() -> None:
        async with opened(postgres_server.create("outage")) as store:
            await store.administration.tenants.create(ACTOR, "acme")
            generation = await store.keys.generation()
            postgres_server.stop()
            try:
                for _ in range(2):
                    with pytest.raises(StoreUnavailable):
                        await store.keys.generation()
            finally:
                postgres_server.start()
            assert await store.keys.generation() == generation

    asyncio.run(main())
