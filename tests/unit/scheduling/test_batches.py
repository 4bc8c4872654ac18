"""Lines of batches fill the rows that others leave idle, and make nobody's first token later."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict

import pytest

from proxy.domain.engine import LOWEST_PRIORITY
from proxy.domain.scheduling import Ticket
from proxy.scheduling.stream import Stream
from proxy.settings.streams import Scheduling
from tests.unit.scheduling.simulated_rows import PREFILL_TOKENS_S, STEP_S, Callers, SimulatedRows

ROWS, LOAD, SECONDS = 4, 0.7, 4_000.0
PROMPT, OUTPUT = (50, 4_000), (50, 350)
ANSWER_S = sum(PROMPT) / 2 / PREFILL_TOKENS_S + sum(OUTPUT) / 2 * STEP_S
OTHERS = Callers(
    "others", every_s=ANSWER_S / (ROWS * LOAD), prompt=PROMPT, output=OUTPUT, may_yield=True
)
# As many lines as there are rows, always.
LINES = Callers("batch", streams=ROWS, priority=LOWEST_PRIORITY, may_yield=True)
MOST_LATER = 1.02


class OwnDraws(SimulatedRows):
    """The callers of a tenant come at the same times, whoever else comes."""

    def __init__(self, *args: object, **options: object) -> None:
        self._draws: dict[str, random.Random] = defaultdict(lambda: random.Random(7))
        super().__init__(*args, **options)

    def _pause(self, callers: Callers) -> float:
        self._random = self._draws[callers.tenant]
        return super()._pause(callers)

    def _made(self, callers: Callers, comes_again: bool):
        self._random = self._draws[callers.tenant]
        return super()._made(callers, comes_again)


def first_tokens_s(*callers: Callers, spare: int, takes_priority: bool) -> OwnDraws:
    rows = OwnDraws(ROWS, Scheduling(), spare=spare, takes_priority=takes_priority)
    for each in callers:
        rows.add(each)
    rows.run(SECONDS)
    return rows


@pytest.mark.parametrize(("spare", "takes_priority"), [(0, True), (2, True), (2, False)])
def test_a_batch_uses_idle_rows_and_delays_nobody(spare, takes_priority):
    alone = first_tokens_s(OTHERS, spare=spare, takes_priority=takes_priority)
    beside = first_tokens_s(LINES, OTHERS, spare=spare, takes_priority=takes_priority)
    before, after = alone.seen["others"].ttfts_s, beside.seen["others"].ttfts_s
    assert len(before) == len(after)
    assert len(before) > 2_000
    percentiles = [statistics.quantiles(each, n=100) for each in (before, after)]
    assert percentiles[1][98] < MOST_LATER * percentiles[0][98]
    for one, other in zip(*percentiles, strict=True):
        assert other < one + 2 * STEP_S  # the row of a line is free with the next step
    idle = (1 - LOAD) * ROWS * SECONDS / STEP_S  # tokens that the others leave
    assert beside.seen["batch"].tokens > 0.85 * idle


def test_a_line_yields_before_its_first_token():
    line = Stream(Ticket(queue="q", tenant="a", priority=LOWEST_PRIORITY, prompt_tokens=9_000,
                         may_yield=True))  # fmt: skip
    assert line.can_yield
