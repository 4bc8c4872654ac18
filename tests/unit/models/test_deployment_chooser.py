"""Which card of a model a request is tried with, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

from build_engines.deployments import DeploymentEntry
from build_engines.models_file import ModelEntry
from proxy.domain.model import LoadedModel, ModelCard
from proxy.domain.request import GenerationRequest, TextPrompt
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
    return one.cards(request, made.known("chat"))[0]


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
