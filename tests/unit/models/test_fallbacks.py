"""Registry.serving: which model answers where the one that was asked for cannot."""

from __future__ import annotations

import pytest

from build_engines.models_file import ModelsFile
from proxy.domain.errors import ModelNotAllowed, UnknownModel
from proxy.domain.identity import ALL_SCOPES, Caller, ModelPatterns, current_caller
from proxy.domain.model import LoadedModel
from proxy.models.registry import Registry, ServedModel
from tests.doubles.engine import FACTS

POLICY = ModelsFile.model_validate(
    {
        "models": {
            "big": {"runtime": "remote", "aliases": ["best"], "fallback": "medium"},
            "medium": {"runtime": "remote", "fallback": "small"},
            "small": {"runtime": "remote"},
        }
    }
).models


def models(*loaded: str, away: tuple[str, ...] = ()) -> Registry:
    registry = Registry(POLICY, is_available=lambda card: card.name not in away)
    registry.serve([LoadedModel(name=name, facts=FACTS) for name in loaded])
    return registry


def answered(found: ServedModel) -> tuple[str, str, str | None]:
    return found.card.name, found.name, found.fallback_from


@pytest.fixture
def allowed():
    """allowed(*patterns): what the caller's key allows, until the test ends."""
    tokens = []

    def only(*patterns: str) -> None:
        caller = Caller(
            tenant="t", key_id="k", scopes=ALL_SCOPES, models=ModelPatterns(patterns=patterns)
        )
        tokens.append(current_caller.set(caller))

    yield only
    for token in reversed(tokens):
        current_caller.reset(token)


def test_the_first_available_of_the_chain_answers_and_says_what_was_asked_for():
    some = models("big", "medium", "small", away=("big",))
    assert answered(some.serving("best")) == ("medium", "medium", "best")
    fewer = models("big", "medium", "small", away=("big", "medium"))
    assert answered(fewer.serving("big")) == ("small", "small", "big")


def test_without_an_available_fallback_the_model_itself_is_served():
    none = models("big", "medium", "small", away=("big", "medium", "small"))
    assert answered(none.serving("big")) == ("big", "big", None)
    with pytest.raises(UnknownModel):
        models("small", away=("small",)).serving("medium")


def test_a_fallback_that_the_key_does_not_allow_is_passed_over(allowed):
    allowed("big", "small")
    some = models("big", "medium", "small", away=("big",))
    assert answered(some.serving("big")) == ("small", "small", "big")
    allowed("big")
    assert answered(some.serving("big")) == ("big", "big", None)


def test_a_fallback_does_not_lead_to_a_model_that_the_key_does_not_allow(allowed):
    allowed("small")
    for loaded in (("big", "small"), ("small",)):
        with pytest.raises(ModelNotAllowed):
            models(*loaded).serving("best")


def test_without_a_name_the_first_allowed_model_answers(allowed):
    allowed("medium", "small")
    some = models("big", "medium", "small", away=("medium",))
    assert answered(some.serving(None)) == ("small", "small", "medium")
