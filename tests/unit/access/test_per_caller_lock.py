"""The keys of a tenant take turns, and each caller has one guide checked at a time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.access.guide_precheck import GuidePrecheck
from proxy.access.per_caller_lock import PerCallerLock
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import RateLimited
from proxy.domain.identity import ANYONE, Caller, current_caller
from proxy.domain.request import Sampling
from proxy.domain.tokenizer import AdmittedPrompt
from tests.doubles.engine import CARD
from tests.fixtures.limits import caller

pytestmark = pytest.mark.anyio


class Jobs:
    """Each job runs for some turns of the event loop; `most` ran at once."""

    def __init__(self, **options: float) -> None:
        self.lock = PerCallerLock(**options)
        self.done: list[str] = []
        self.running = self.most = 0

    def begin(self, who: Caller, name: str) -> asyncio.Task[None]:
        current_caller.set(who)
        return asyncio.ensure_future(self._job(name))

    async def _job(self, name: str) -> None:
        async with self.lock.hold(name):
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.01)
            self.running -= 1
            self.done.append(name)


async def test_a_key_with_one_job_waits_for_one_of_each_other_key():
    jobs = Jobs()
    keys = ("1", "1", "1", "2", "3")
    await asyncio.gather(*(jobs.begin(caller("t", key), f"t/{key}") for key in keys))
    assert jobs.done == ["t/1", "t/2", "t/3", "t/1", "t/1"]
    assert jobs.most == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [((ANYONE, "a"), (ANYONE, "b")), ((caller("t", "1"), "t/1"), (caller("u", "1"), "u/1"))],
)
async def test_tenants_and_callers_without_one_run_at_the_same_time(one, other):
    jobs = Jobs()
    await asyncio.gather(jobs.begin(*one), jobs.begin(*one), jobs.begin(*other))
    assert jobs.most == 2


async def test_a_caller_may_have_so_many_jobs_waiting_and_for_so_long():
    jobs = Jobs(waiting=2, patience_s=0.001)
    ran, waited, refused = (jobs.begin(ANYONE, "a") for _ in range(3))
    for task, said in ((refused, "2 of your requests"), (waited, "for 0.001 s")):
        with pytest.raises(RateLimited, match=said):
            await task
    await ran
    await jobs.begin(ANYONE, "a")


class SlowTokenizer:
    """Each guide takes some turns of the event loop; keeps how many ran at once."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.running = self.most = 0

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        self.asked.append(request.constraint.text)
        assert (request.text, request.max_tokens) == ("a", 1)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        return AdmittedPrompt(ids=(1,), max_tokens=1)


def guided(text: str) -> EngineRequest:
    return EngineRequest(
        id="r",
        model=CARD,
        text="long " * 1000,
        timeout_s=9,
        sampling=Sampling(),
        constraint=Constraint(GuideKind.REGEX, text),
    )


@pytest.mark.parametrize(("callers", "at_once"), [("aaaa", 1), ("abcd", 4)])
def test_each_caller_has_one_guide_checked_at_a_time_and_none_twice_for_all_its_choices(
    callers, at_once
):
    async def scenario():
        tokenizer = SlowTokenizer()
        check = GuidePrecheck(tokenizer).check
        await asyncio.gather(*(check(guided("first"), "a") for _ in range(1000)))
        for _ in range(2):
            await asyncio.gather(*(check(guided(f"g{at}"), who) for at, who in enumerate(callers)))
            await check(replace(guided(""), constraint=None), "a")
        return tokenizer

    tokenizer = asyncio.run(scenario())
    assert tokenizer.most == at_once
    assert sorted(tokenizer.asked) == ["first", "g0", "g1", "g2", "g3"]
