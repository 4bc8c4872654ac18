"""Rules before shares, shares that hold, and which card a request is tried with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build_engines.deployments import CanaryEntry, DeploymentEntry
from build_engines.models_file import ModelEntry
from proxy.domain.model import LoadedModel, ModelCard
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.models.deployment_chooser import DeploymentChooser
from proxy.models.deployments import DeploymentPlan, RouteHints, Sticky, choose
from proxy.models.registry import Registry
from tests.doubles.engine import FACTS
from tests.doubles.pools import DecisionsInMemory

BLUE, GREEN = DeploymentEntry(name="blue", weight=3), DeploymentEntry(name="green", weight=1)
TWO = DeploymentPlan(deployments=(BLUE, GREEN))
STICKY = DeploymentPlan(deployments=(BLUE, GREEN, DeploymentEntry(name="red")), sticky=Sticky.USER)
CALLERS = [f"user-{number}" for number in range(2_000)]
weights = st.dictionaries(
    st.sampled_from(["blue", "green", "red", "gone"]), st.floats(0, 1e6, allow_nan=False)
)


EVERYWHERE = ("blue", "green", "red", "h", "t")


def name(plan, hints, available=EVERYWHERE, weights=None):
    found = choose(plan, hints, available, weights)
    return None if found is None else found.name


def places(plan, weights=None, available=EVERYWHERE):
    """user -> deployment"""
    hints = {user: RouteHints(number=0.0, tenant="t", user=user) for user in CALLERS}
    return {user: name(plan, hint, available, weights) for user, hint in hints.items()}


def within(found: int, of: int, share: float) -> bool:
    """Within five standard deviations of a binomial distribution."""
    return abs(found - of * share) <= 5 * math.sqrt(of * share * (1 - share))


def test_a_header_rule_comes_before_a_tenant_rule_and_both_before_the_weights():
    by_name = CanaryEntry.model_validate({"header": {"name": "X-Canary", "value": "yes"}})
    by_header = DeploymentEntry(name="h", weight=0, canary=by_name)
    by_tenant = DeploymentEntry(name="t", weight=0, canary=CanaryEntry(tenants=("team-*",)))
    plan = DeploymentPlan(deployments=(BLUE, by_tenant, by_header))
    assert plan.header_names == {"x-canary"}
    both = RouteHints(number=0, tenant="team-a", headers={"x-canary": "yes"})
    assert name(plan, both) == "h"
    assert name(plan, RouteHints(number=0, tenant="team-a", headers={"x-canary": "no"})) == "t"
    assert name(plan, RouteHints(number=0, tenant="other")) == "blue"
    assert name(plan, both, ["blue"]) == "blue", "a rule is no obligation"


def test_weights_divide_what_percentages_leave():
    canary = DeploymentEntry(name="canary", weight=0, canary=CanaryEntry(percent=10))
    plan = DeploymentPlan(deployments=(BLUE, GREEN, canary))
    assert plan.shares() == pytest.approx((0.675, 0.225, 0.1))


def test_a_standby_takes_over_while_no_deployment_with_a_share_is_available():
    canary = DeploymentEntry(name="h", canary=CanaryEntry(tenants=("team-*",)))
    standby = DeploymentEntry(name="spare", standby=True)
    plan = DeploymentPlan(deployments=(standby, BLUE, GREEN, canary), sticky=Sticky.USER)
    some = RouteHints(number=0.5, tenant="t", user="u")
    assert plan.shares() == (0, 0.75, 0.25, 0)
    assert set(places(plan, available=["spare", "blue", "green", "h"]).values()) == {
        "blue",
        "green",
    }
    assert name(plan, some, ["spare", "green"]) == "green"
    assert name(plan, some, ["spare", "h"]) == "spare"
    assert name(plan, RouteHints(number=0, tenant="team-a"), ["spare", "h"]) == "h"
    assert name(plan, some, ["spare", "blue"], {"green": 1}) == "spare"
    assert name(plan, some, weights={"spare": 1}, available=["spare", "blue"]) == "spare"
    assert name(plan, some, ["h"]) is None


def test_operators_weights_replace_weights_and_percentages():
    canary = DeploymentEntry(name="canary", weight=0, canary=CanaryEntry(percent=10))
    plan = DeploymentPlan(deployments=(BLUE, GREEN, canary))
    assert plan.shares({"green": 1, "canary": 3}) == pytest.approx((0, 0.25, 0.75))
    assert plan.shares({"gone": 1}) == plan.shares(), "weights of another file's deployments"


@given(weights)
def test_shares_are_always_a_whole(weights):
    shares = STICKY.shares(weights)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0


@given(st.text(), st.text(), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_a_user_keeps_its_deployment_whatever_the_random_number(tenant, user, one, other):
    first = name(STICKY, RouteHints(number=one, tenant=tenant, user=user))
    assert first == name(STICKY, RouteHints(number=other, tenant=tenant, user=user))


def test_a_sticky_request_without_a_user_is_chosen_by_its_key_and_without_a_key_at_random():
    keyed = {name(STICKY, RouteHints(number=n / 100, key="k")) for n in range(100)}
    assert len(keyed) == 1
    assert len({name(STICKY, RouteHints(number=n / 100)) for n in range(100)}) == 3


@given(weights, weights)
def test_changed_weights_move_callers_only_to_deployments_whose_share_grows(before, after):
    """By rendezvous: relative to the deployment that it leaves."""
    old, new = STICKY.shares(before), STICKY.shares(after)
    grown = {
        (a.name, b.name)
        for a, old_a, new_a in zip(STICKY.deployments, old, new, strict=True)
        for b, old_b, new_b in zip(STICKY.deployments, old, new, strict=True)
        if new_b * old_a > old_b * new_a
    }
    for user in CALLERS[:50]:
        hints = RouteHints(number=0, tenant="t", user=user)
        moved = name(STICKY, hints, weights=before), name(STICKY, hints, weights=after)
        assert moved[0] == moved[1] or moved in grown


def test_only_the_callers_of_a_deployment_that_is_away_move():
    whole, part = places(STICKY), places(STICKY, available=["blue", "red"])
    assert {whole[user] for user in CALLERS if whole[user] != part[user]} == {"green"}
    assert "green" not in part.values()


@given(st.floats(0, 1, exclude_max=True), weights)
def test_an_available_deployment_with_a_share_is_always_found(number, weights):
    found = name(STICKY, RouteHints(number=number), weights=weights)
    shares = dict(zip(("blue", "green", "red"), STICKY.shares(weights), strict=True))
    assert shares[found] > 0


BOTH = (
    DeploymentEntry(name="blue", pool="blue", model="m", weight=3),
    DeploymentEntry(name="green", pool="green", model="m", weight=1),
)
REQUEST = GenerationRequest(id="r1", model="chat", prompt=TextPrompt(text="hi"))


def model(name: str = "m", pool: str = "blue", created: int = 1, **fields: object) -> LoadedModel:
    return LoadedModel(name=name, pool=pool, facts=replace(FACTS, created=created), **fields)


def registry(
    entry: ModelEntry,
    *models: LoadedModel,
    is_available: Callable[[ModelCard], bool] = lambda card: True,
    **options: object,
) -> Registry:
    made = Registry({"chat": entry}, is_available=is_available, **options)
    made.serve(models)
    return made


def chooser(made: Registry, decisions: DecisionsInMemory | None = None) -> DeploymentChooser:
    return DeploymentChooser(made, decisions, Random(1))


def first(made: Registry, one: DeploymentChooser, request=REQUEST) -> ModelCard:
    return one.cards(request, made.model("chat").cards[0])[0]


def test_builds_of_one_deployment_get_requests_by_their_rows_and_each_follows_the_other():
    rows = {1: 90, 2: 10}
    made = registry(
        ModelEntry(deployments=BOTH[:1]),
        model(created=1),
        model(created=2),
        rows=lambda card: rows[card.facts.created],
    )
    one, found = chooser(made), Counter()
    for _ in range(500):
        cards = list(one.cards(REQUEST, made.model("chat").cards[0]))
        assert {card.facts.created for card in cards} == {1, 2}
        found[cards[0].facts.created] += 1
    assert 25 < found[2] < 80


def test_other_builds_of_the_same_deployment_come_before_other_deployments():
    made = registry(ModelEntry(deployments=BOTH), model(), model(created=2), model(pool="green"))
    one = chooser(made)
    for _ in range(50):
        pools = [card.pool for card in one.cards(REQUEST, made.model("chat").cards[0])]
        assert pools in (["blue", "blue", "green"], ["green", "blue", "blue"])
