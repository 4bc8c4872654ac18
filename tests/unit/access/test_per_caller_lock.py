"""PerCallerLock: the keys of a tenant take turns, however many jobs each of them has."""

from __future__ import annotations

import asyncio

from proxy.access.per_caller_lock import PerCallerLock
from proxy.domain.identity import current_caller
from tests.fixtures.limits import caller


def test_a_key_with_one_job_waits_for_one_of_each_other_key():
    async def scenario() -> list[str]:
        lock, done = PerCallerLock(), list[str]()

        async def job(name: str) -> None:
            async with lock.hold(name):
                begun = len(done)
                await asyncio.sleep(0)
                assert len(done) == begun  # no other job of the tenant ran meanwhile
                done.append(name)

        jobs = []
        for key in ("1", "1", "1", "2", "3"):
            current_caller.set(caller("t", key))
            jobs.append(asyncio.ensure_future(job(f"t/{key}")))
        await asyncio.gather(*jobs)
        return done

    assert asyncio.run(scenario()) == ["t/1", "t/2", "t/3", "t/1", "t/1"]
