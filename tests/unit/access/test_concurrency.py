"""ConcurrencyLimit, ModelConcurrency: permits live as long as their stream, and count choices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.access.concurrency import (
    LONGEST_S,
    SHORTEST_S,
    ConcurrencyLimit,
    ModelConcurrency,
    permits_needed,
)
from proxy.domain.errors import RateLimited
from proxy.domain.request import GenerationRequest, Sampling, TextPrompt
from tests.doubles.engine import CARD, FACTS


def choices(number: int, top: int | None = None) -> GenerationRequest:
    return GenerationRequest(
        id="r",
        model="demo",
        prompt=TextPrompt(text="x"),
        choices=number,
        sampling=Sampling(top_log_probs=top),
    )


@pytest.mark.parametrize(
    ("top", "number", "counted"), [(None, 3, 3), (0, 3, 3), (1, 1, 2), (4, 2, 4), (20, 2, 12)]
)
def test_choices_with_alternatives_count_for_more(top, number, counted):
    assert permits_needed(choices(number, top)) == counted


def test_models_have_limits_of_their_own_by_their_rows_as_they_are_now():
    rows = {"small": 1, "large": 4}
    admission = ModelConcurrency(per_row=2, rows=lambda card: rows[card.triton_model])
    small, large = (replace(CARD, triton_model=name) for name in rows)
    made_before_others_ran = admission.permits(large, choices(1))
    with admission.permits(large, choices(7)), made_before_others_ran:
        pass
    with admission.permits(small, choices(2)), admission.permits(large, choices(8)):
        assert admission.running == 10
        for card in (small, large):
            with pytest.raises(RateLimited), admission.permits(card, choices(1)):
                pass
        rows["small"] = 2
        with admission.permits(small, choices(2)):
            assert admission.running == 12
    assert admission.running == 0


def test_adapters_share_the_rows_of_their_model_and_models_the_total():
    admission = ModelConcurrency(3, per_row=2)
    model = replace(CARD, facts=replace(FACTS, rows=1))
    adapter = replace(model, name="adapter", parent="demo")
    other = replace(model, triton_model="other")
    with admission.permits(model, choices(2)):
        for card, number, said in ((adapter, 1, "'demo'"), (other, 2, "This server")):
            with (
                pytest.raises(RateLimited, match=said),
                admission.permits(card, choices(number)),
            ):
                pass
    with admission.permits(other, choices(2)):  # what the refused one had taken came back
        pass


def test_the_wait_is_the_missing_permits_over_the_measured_rate_within_bounds():
    now_s = [100.0]

    def measured(permits: int, gap_s: float) -> ConcurrencyLimit:
        limit = ConcurrencyLimit(200, clock=lambda: now_s[0])
        for _ in range(11):
            with limit.permits(permits):
                pass
            now_s[0] += gap_s
        return limit

    halves = measured(1, 0.5)
    assert halves.wait_s(1) == pytest.approx(0.55)
    assert halves.wait_s(10) == pytest.approx(5.5)
    assert measured(128, 0.0).wait_s(1) == SHORTEST_S
    assert measured(1, 10_000).wait_s(128) == LONGEST_S
