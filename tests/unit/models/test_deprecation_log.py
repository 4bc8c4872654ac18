"""deprecation_log: one line a day for each model and tenant, from the day of deprecation on."""

from __future__ import annotations

from datetime import date

from structlog.testing import capture_logs

from proxy.domain.model import Lifecycle, ModelCard
from proxy.models.deprecation_log import MAX_PAIRS, DeprecationLog
from tests.doubles.engine import FACTS

OLD = Lifecycle(deprecated=date(2026, 1, 31), sunset=date(2026, 7, 31))
ENDING = Lifecycle(sunset=date(2026, 2, 1))


def lines(*days: date, lifecycle: Lifecycle = OLD, pairs: int = 1) -> list[dict]:
    """Of two calls of each tenant on each of these days."""
    card = ModelCard(name="old", triton_model="old", facts=FACTS, lifecycle=lifecycle)
    with capture_logs() as found:
        each = iter([day for day in days for _ in range(2 * pairs)])
        log = DeprecationLog(lambda: next(each))
        for number in range(2 * pairs * len(days)):
            log.note(card, f"t{number % pairs}")
    return found


def test_a_tenant_is_logged_once_a_day_from_the_day_on_within_a_bound():
    before, first, next_day = date(2026, 1, 30), date(2026, 1, 31), date(2026, 2, 1)
    found = lines(before, first, next_day, pairs=2)
    assert [(line["model"], line["tenant"]) for line in found] == [("old", "t0"), ("old", "t1")] * 2
    assert (found[0]["deprecated"], found[0]["sunset"]) == ("2026-01-31", "2026-07-31")
    assert len(lines(first, next_day, lifecycle=ENDING)) == 1
    assert lines(next_day, lifecycle=Lifecycle()) == []
    assert len(lines(first, pairs=MAX_PAIRS + 5)) == MAX_PAIRS
