"""Equal guides of one caller are checked once, however many choices wait for the check."""

from __future__ import annotations

import asyncio

from proxy.access.guide_precheck import GuidePrecheck
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.engine import EngineRequest
from proxy.domain.request import Sampling
from tests.doubles.engine import CARD
from tests.doubles.tokenizer import ByteTokenizer

GUIDED = EngineRequest(
    id="r",
    model=CARD,
    text="x",
    timeout_s=1,
    sampling=Sampling(),
    constraint=Constraint(kind=GuideKind.REGEX, text="a+"),
)


class Slow(ByteTokenizer):
    def __init__(self) -> None:
        self.asked = 0

    async def admit(self, request):
        self.asked += 1
        await asyncio.sleep(0.001)
        return await super().admit(request)


def test_a_thousand_choices_with_one_guide_ask_the_tokenizer_once():
    async def run() -> None:
        precheck = GuidePrecheck(tokenizer := Slow())
        await asyncio.gather(*(precheck.check(GUIDED, "caller") for _ in range(1000)))
        assert tokenizer.asked == 1

    asyncio.run(run())
