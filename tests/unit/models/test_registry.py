"""Registry: names, aliases, policy, and what happens while Triton is away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.doubles.engine import FACTS
from triton_openai.build_engines.models_file import ModelEntry
from triton_openai.build_engines.sampling_defaults import SamplingDefaults
from triton_openai.proxy.domain.engine import NotReady
from triton_openai.proxy.domain.errors import ModelUnavailable, UnknownModel
from triton_openai.proxy.domain.model import LoadedModel
from triton_openai.proxy.models.registry import Registry

POLICY = {
    "big": ModelEntry(aliases=("gpt-4o",), owned_by="us"),
    "small": ModelEntry(sampling=SamplingDefaults(temperature=0)),
}


def registry(*names: str) -> Registry:
    made = Registry(POLICY)
    made.serve([LoadedModel(name=name, facts=FACTS) for name in names])
    return made


def test_models_come_in_the_order_of_models_yaml_then_by_name():
    names = [card.name for card in registry("z", "small", "a", "big").cards()]
    assert names == ["big", "small", "a", "z"]


def test_an_alias_finds_the_model_and_policy_is_applied():
    card = registry("big", "small").card("gpt-4o")
    assert (card.name, card.owned_by) == ("big", "us")
    assert registry("small").card("small").sampling.temperature == 0


def test_a_model_without_policy_is_served_by_its_own_name():
    assert registry("other").card("other").triton_model == "other"


def test_an_adapter_is_a_model_beside_its_own_with_the_same_policy_and_no_alias():
    made = Registry(POLICY)
    facts = replace(FACTS, adapters=("sql", "poet"))
    made.serve([LoadedModel(name="big", facts=facts), LoadedModel(name="small", facts=FACTS)])
    assert [card.name for card in made.cards()] == ["big", "sql", "poet", "small"]
    sql = made.card("sql")
    assert (sql.parent, sql.triton_model, sql.owned_by) == ("big", "big", "us")
    assert (made.card("gpt-4o").name, made.card("big").parent) == ("big", None)
    assert made.default().name == "big"


def test_an_unknown_name_is_unknown_even_while_suspended():
    made = registry("big")
    made.suspend(NotReady("at 10.0.0.1:8001", "away"))
    with pytest.raises(UnknownModel):
        made.card("nope")
    with pytest.raises(ModelUnavailable, match="away"):
        made.card("big")
    assert made.known("big").name == "big"


def test_before_triton_was_seen_nothing_is_known():
    with pytest.raises(ModelUnavailable, match="not been reached"):
        Registry(POLICY).card("big")
