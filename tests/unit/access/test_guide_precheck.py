"""GuidePrecheck: one guide of each caller at a time, and each guide once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.access.guide_precheck import GuidePrecheck
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.request import Sampling
from proxy.domain.tokenizer import AdmittedPrompt
from tests.doubles.engine import CARD


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
