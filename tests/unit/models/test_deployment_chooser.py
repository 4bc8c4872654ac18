"""Which card of a model a request is tried with, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from build_engines.deployment_entries import DeploymentEntry
from build_engines.models_file import ModelEntry
from proxy.domain.errors import ModelUnavailable
from proxy.domain.model import LoadedModel, ModelCard
from proxy.domain.request import ChatPrompt, GenerationRequest, Message, TextPrompt
from proxy.models.deployment_chooser import DeploymentChooser
from proxy.models.registry import Registry
from tests.doubles.engine import FACTS
from tests.doubles.pools import DecisionsInMemory

TWO = (
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
    return next(one.cards(request, made.known("chat")))


def test_requests_are_divided_by_weight_and_the_other_deployment_comes_second():
    made = registry(ModelEntry(deployments=TWO), model(), model(pool="green"))
    one, found = chooser(made), Counter()
    for _ in range(400):
        cards = list(one.cards(REQUEST, made.known("chat")))
        assert {card.deployment for card in cards} == {"blue", "green"}
        found[cards[0].deployment] += 1
    assert 250 < found["blue"] < 350


def test_operators_weights_replace_those_of_the_file():
    made = registry(ModelEntry(deployments=TWO), model(), model(pool="green"))
    decisions = DecisionsInMemory()
    one = chooser(made, decisions)

    async def switch() -> None:
        await decisions.set_weights("chat", {"green": 1.0}, actor="me")

    coroutine = switch()
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert {first(made, one).pool for _ in range(50)} == {"green"}


def test_a_deployment_without_an_endpoint_gets_nothing():
    made = registry(
        ModelEntry(deployments=TWO),
        model(),
        model(pool="green"),
        is_available=lambda card: card.pool == "green",
    )
    one = chooser(made)
    assert {first(made, one).pool for _ in range(50)} == {"green"}
    cards = list(one.cards(REQUEST, made.known("chat")))
    assert [card.pool for card in cards] == ["green"]


def test_without_any_it_is_unavailable():
    made = registry(
        ModelEntry(deployments=TWO),
        model(),
        model(pool="green"),
        is_available=lambda card: False,
    )
    with pytest.raises(ModelUnavailable, match="no deployment that is ready"):
        first(made, chooser(made))


def test_builds_of_one_deployment_get_requests_by_their_rows_and_each_follows_the_other():
    rows = {1: 90, 2: 10}
    made = registry(
        ModelEntry(deployments=TWO[:1]),
        model(created=1),
        model(created=2),
        rows=lambda card: rows[card.facts.created],
    )
    one, found = chooser(made), Counter()
    for _ in range(500):
        cards = list(one.cards(REQUEST, made.known("chat")))
        assert {card.facts.created for card in cards} == {1, 2}
        found[cards[0].facts.created] += 1
    assert 25 < found[2] < 80


def test_other_builds_of_the_same_deployment_come_before_other_deployments():
    made = registry(ModelEntry(deployments=TWO), model(), model(created=2), model(pool="green"))
    one = chooser(made)
    for _ in range(50):
        pools = [card.pool for card in one.cards(REQUEST, made.known("chat"))]
        assert pools in (["blue", "blue", "green"], ["green", "blue", "blue"])


@pytest.mark.parametrize("sticky", ["user", "conversation"])
def test_a_sticky_caller_keeps_its_deployment(sticky):
    made = registry(ModelEntry(deployments=TWO, sticky=sticky), model(), model(pool="green"))
    one, chosen = chooser(made), set()
    for number in range(40):
        turns = [Message(role="user", content=f"question {number}")]
        pools = set()
        for _ in range(5):
            prompt = ChatPrompt(messages=tuple(turns))
            request = replace(REQUEST, prompt=prompt, user=f"u{number}")
            pools.add(first(made, one, request).pool)
            turns += [Message(role="assistant", content="a"), Message(role="user", content="b")]
        assert len(pools) == 1
        chosen |= pools
    assert chosen == {"blue", "green"}


def test_a_model_with_one_card_is_not_asked_about():
    made = registry(
        ModelEntry(deployments=TWO[:1]), model(), is_available=lambda card: pytest.fail("asked")
    )
    assert first(made, chooser(made)).pool == "blue"
