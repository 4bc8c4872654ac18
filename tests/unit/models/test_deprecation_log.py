"""deprecation_log: one line a day for each model and tenant, from the day of deprecation on."""

from __future__ import annotations

from datetime import date

from structlog.testing import capture_logs

from proxy.domain.model import Lifecycle, ModelCard
from proxy.models import deprecation_log
from proxy.models.deprecation_log import DeprecationLog
from tests.doubles.engine import FACTS

ENDING = Lifecycle(deprecated=date(2026, 1, 31), sunset=date(2026, 7, 31))


def card(name: str = "old", lifecycle: Lifecycle = ENDING) -> ModelCard:
    return ModelCard(name=name, triton_model=name, facts=FACTS, lifecycle=lifecycle)


def logged(days: list[date], calls: list[tuple[ModelCard, str]]) -> list[dict]:
    """The lines of the same calls on each of these days."""
    each = iter([day for day in days for _ in calls])
    log = DeprecationLog(lambda: next(each))
    with capture_logs() as lines:
        for used, tenant in calls * len(days):
            log.note(used, tenant)
    return lines


def test_a_tenant_is_logged_once_a_day_for_each_model():
    days = [date(2026, 2, 1), date(2026, 2, 1), date(2026, 2, 2)]
    lines = logged(days, [(card(), "a"), (card(), "b"), (card("other"), "a"), (card(), "a")])
    assert [(line["model"], line["tenant"]) for line in lines] == 2 * [
        ("old", "a"),
        ("old", "b"),
        ("other", "a"),
    ]
    assert (lines[0]["deprecated"], lines[0]["sunset"]) == ("2026-01-31", "2026-07-31")


def test_a_model_is_not_logged_before_its_day_nor_one_without_dates():
    assert logged([date(2026, 1, 30)], [(card(), "a")]) == []
    assert logged([date(2030, 1, 1)], [(card(lifecycle=Lifecycle()), "a")]) == []
    assert len(logged([date(2026, 1, 31)], [(card(), "a")])) == 1
    only = Lifecycle(sunset=date(2026, 3, 1))
    assert len(logged([date(2026, 2, 28), date(2026, 3, 1)], [(card(lifecycle=only), "a")])) == 1


def test_what_is_remembered_has_a_bound():
    calls = [(card(), f"t{n}") for n in range(deprecation_log.MAX_PAIRS + 5)]
    assert len(logged([date(2026, 2, 1)], calls)) == deprecation_log.MAX_PAIRS
