"""Registry: names, aliases, policy, fallbacks, and what happens while Triton is away."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from build_engines.deployments import DeploymentEntry
from build_engines.models_file import ModelEntry, ModelsFile, RemoteEntry, SamplingDefaults
from proxy.domain.engine import NotReady
from proxy.domain.errors import ErrorCode, ModelUnavailable, RequestError, UnknownModel
from proxy.domain.identity import ALL_SCOPES, Caller, ModelPatterns, current_caller
from proxy.domain.model import LoadedModel
from proxy.models.readiness import refresh
from proxy.models.registry import ModelInfo, Registry, ServedModel
from tests.doubles.engine import FACTS, FixedCatalog, learn

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


def test_an_unknown_name_is_unknown_even_while_suspended():
    made = registry("big")
    made.suspend(NotReady("at 10.0.0.1:8001", "away"))
    with pytest.raises(UnknownModel):
        made.model("nope")
    with pytest.raises(ModelUnavailable, match="away"):
        made.check_available(made.model("big").cards[0])
    assert made.model("big").cards[0].name == "big"


@pytest.mark.parametrize(
    ("name", "near"),
    [("bigg", "big"), ("gpt4o", "gpt-4o"), ("smal", "small"), ("x", None), ("b" * 999, None)],
)
def test_an_unknown_name_is_answered_with_the_nearest_that_the_caller_may_use(allowed, name, near):
    made = registry("big", "small")
    for ask in (made.serving, made.asked):
        with pytest.raises(UnknownModel) as error:
            ask(name)
        hint = f"Did you mean {near!r}?"
        assert (hint in error.value.message) is (near is not None)
        assert ("Did you mean" in error.value.message) is (near is not None)
    allowed("none")
    with pytest.raises(UnknownModel) as error:
        made.asked(name, hides=True)
    assert "Did you mean" not in error.value.message
    with pytest.raises(UnknownModel) as hidden:
        made.asked("big", hides=True)  # as if there were none
    assert "Did you mean" not in hidden.value.message


def deployed(*deployments: DeploymentEntry, **fields: object) -> dict[str, ModelEntry]:
    return {"chat": ModelEntry(deployments=deployments, **fields)}


def test_a_public_name_has_a_card_for_each_deployment_that_is_loaded():
    made = Registry(
        deployed(
            DeploymentEntry(name="blue", pool="east", model="v1"),
            DeploymentEntry(name="green", pool="west", model="v2"),
            DeploymentEntry(name="gone", pool="north", model="v1"),
            aliases=("gpt-4o",),
        )
    )
    east = LoadedModel(name="v1", facts=FACTS, pool="east")
    made.serve([east, LoadedModel(name="v2", facts=FACTS, pool="west")])
    found = [(card.deployment, card.pool, card.triton_model) for card in made.model("gpt-4o").cards]
    assert found == [("blue", "east", "v1"), ("green", "west", "v2")]
    assert [card.name for card in made.cards()] == ["chat"]
    assert made.serve([east])
    assert [card.deployment for card in made.model("chat").cards] == ["blue"]


def test_the_parts_of_every_deployment_and_build_are_internal():
    made = Registry(deployed(DeploymentEntry(name="blue"), DeploymentEntry(name="green", pool="b")))
    facts = [
        replace(FACTS, engine_model=f"engine_{n}", tokenizer_model=f"in_{n}", detokenizer_model="o")
        for n in range(3)
    ]
    found = zip(facts, ("default", "b", "c"), strict=True)
    made.serve([LoadedModel(name="chat", facts=each, pool=pool) for each, pool in found])
    parts = {f"{part}_{n}" for part in ("engine", "in") for n in range(3)}
    assert made.internal_models() == {"chat", "o", *parts}


def test_a_model_that_a_deployment_claims_is_not_served_under_its_own_name():
    made = Registry(deployed(DeploymentEntry(name="blue", pool="east", model="v1")))
    made.serve(
        [
            LoadedModel(name="v1", facts=FACTS, pool="east"),
            LoadedModel(name="v1", facts=FACTS, pool="west"),
            LoadedModel(name="free", facts=FACTS, pool="west"),
        ]
    )
    assert {card.name: card.pool for card in made.cards()} == {
        **{"chat": "east", "free": "west"},
        "v1": "west",
    }


def test_builds_of_one_deployment_are_variants_the_newest_first():
    made = Registry({})
    builds = [LoadedModel(name="m", facts=replace(FACTS, created=n)) for n in (1, 3, 2)]
    made.serve(builds)
    assert [card.facts.created for card in made.model("m").cards] == [3, 2, 1]
    old = made.model("m").cards[-1]
    assert made.has_build(old)
    made.serve(builds[1:])
    assert not made.has_build(old)


def test_models_without_an_endpoint_are_unserved_as_long_as_no_build_has_one():
    available: set[str] = {"small"}
    made = Registry(POLICY, is_available=lambda card: card.triton_model in available)
    adapters = replace(FACTS, adapters=("sql",))
    made.serve([LoadedModel(name="big", facts=adapters), LoadedModel(name="small", facts=FACTS)])
    assert (made.unserved(), len(made.own_models)) == (("big",), 2)
    assert not made.is_available(made.model("big").cards[0])
    available.add("big")
    assert made.unserved() == ()
    made.suspend(NotReady("away"))
    assert not made.is_available(made.model("big").cards[0])


NEW = DeploymentEntry(name="new", model="chat-v2", pool="west")
DEPLOYED = {"chat": ModelEntry(deployments=(DeploymentEntry(name="old"), NEW))}


def places(registry: Registry) -> set[tuple[str, ...]]:
    family, _ = ModelInfo(registry).collect()
    assert {(sample.name, sample.value) for sample in family.samples} <= {("proxy_model_info", 1)}
    labels = ("model", "pool", "triton_model")
    return {tuple(sample.labels[name] for name in labels) for sample in family.samples}


def test_every_deployment_and_adapter_names_its_triton_model():
    registry = Registry(DEPLOYED)
    registry.serve(
        [
            LoadedModel(name="chat", facts=FACTS),
            LoadedModel(name="chat-v2", pool="west", facts=FACTS),
            LoadedModel(name="tuned", facts=replace(FACTS, adapters=("poet",))),
        ]
    )
    assert places(registry) == {
        ("chat", "default", "chat"),
        ("chat", "west", "chat-v2"),
        ("tuned", "default", "tuned"),
        ("poet", "default", "tuned"),
    }


FALLBACKS = ModelsFile.model_validate(
    {
        "models": {
            "big": {"runtime": "remote", "aliases": ["best"], "fallback": "medium"},
            "medium": {"runtime": "remote", "fallback": "small"},
            "small": {"runtime": "remote"},
        }
    }
).models


def models(*loaded: str, away: tuple[str, ...] = ()) -> Registry:
    registry = Registry(FALLBACKS, is_available=lambda card: card.name not in away)
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
        with pytest.raises(RequestError) as refused:
            models(*loaded).serving("best")
        assert refused.value.code is ErrorCode.MODEL_NOT_ALLOWED


def test_without_a_name_the_first_allowed_model_answers(allowed):
    allowed("medium", "small")
    some = models("big", "medium", "small", away=("medium",))
    assert answered(some.serving(None)) == ("small", "small", "medium")


def test_what_a_model_is_is_read_anew_without_a_loss_of_readiness():
    catalog, registry = FixedCatalog(), Registry({})
    asyncio.run(refresh(catalog, registry, learn))
    known = registry.model("demo").cards[0]
    asyncio.run(refresh(catalog, registry, learn))
    assert registry.model("demo").cards[0] is known
    catalog.facts = replace(catalog.facts, context_length=7)
    with capture_logs() as lines:
        for _ in range(3):
            asyncio.run(refresh(catalog, registry, learn))
    assert registry.model("demo").cards[0].facts.context_length == 7
    assert [line["event"] for line in lines] == ["ready"]


def test_the_registry_follows_what_the_catalog_says():
    catalog, registry = FixedCatalog("Triton is starting"), Registry({})

    def look() -> str | None:
        asyncio.run(refresh(catalog, registry, learn))
        return registry.why_not_ready and str(registry.why_not_ready)

    assert look() == "Triton is starting"
    catalog.reason = None
    assert look() is None
    assert registry.model("demo").cards[0].name == "demo"
    catalog.reason = "it died"
    assert look() == "it died"
    assert registry.model("demo").cards[0].name == "demo"
    catalog.reason = None
    assert look() is None


WEST = LoadedModel(name="chat-v2", pool="west", facts=FACTS)
UNNAMED = LoadedModel(name="tuned", facts=FACTS)


@pytest.mark.parametrize(("holds", "kept"), [(True, {"chat-v2", "chat"}), (False, {"chat"})])
def test_a_model_of_models_yaml_whose_endpoints_left_is_kept_where_requests_wait_for_it(
    holds, kept
):
    there: set[str] = {"chat-v2"}
    made = Registry(DEPLOYED, is_available=lambda card: card.triton_model in there, holds=holds)
    made.serve([WEST, UNNAMED])
    there.remove("chat-v2")
    there.add("chat")
    made.serve([LoadedModel(name="chat", facts=FACTS)])
    assert {one.name for one in made.loaded} == kept
    assert [made.is_held(card) for card in made.model("chat").cards if card.pool == "west"] == [
        True
    ] * holds
    assert made.holds_queue("west/chat-v2") is holds
    assert not made.holds_queue("default/tuned")


@pytest.mark.parametrize(
    ("holds", "has_endpoints", "is_held"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_requests_wait_for_the_first_endpoint_but_not_where_the_contract_is_broken(
    holds, has_endpoints, is_held
):
    made = Registry({}, is_available=lambda card: False, holds=holds)
    made.suspend(NotReady("away"), has_endpoints=False)
    assert not made.is_holding  # of a model that was never seen, nothing can be prepared
    made.serve([UNNAMED])
    made.suspend(NotReady("away"), has_endpoints=has_endpoints)
    [card] = made.model("tuned").cards
    assert made.is_holding is is_held
    assert made.is_held(card) is is_held
    if is_held:
        made.check_available(card, or_held=True)
    else:
        with pytest.raises(ModelUnavailable):
            made.check_available(card, or_held=True)


@pytest.mark.parametrize("name", ["chat", "tuned-too", "sql"])
@pytest.mark.parametrize("ask", ["model", "serving", "asked"])
def test_a_model_that_may_be_at_zero_and_was_never_seen_is_unavailable_and_not_unknown(ask, name):
    policy = {"chat": ModelEntry(), "tuned": ModelEntry(aliases=("tuned-too",))}
    policy["theirs"] = RemoteEntry(adopt="theirs", adapters=("sql",))
    for holds, error in ((True, ModelUnavailable), (False, UnknownModel)):
        made = Registry(policy, holds=holds)
        made.serve([LoadedModel(name="else", facts=FACTS)])
        with pytest.raises(error):
            getattr(made, ask)(name)
        with pytest.raises(UnknownModel):
            getattr(made, ask)("chut")


def test_one_that_a_key_does_not_allow_stays_hidden_also_where_it_was_never_seen(allowed):
    made = Registry({"chat": ModelEntry()}, holds=True)
    made.serve([LoadedModel(name="else", facts=FACTS)])
    allowed("else")
    with pytest.raises(UnknownModel):
        made.asked("chat", hides=True)
    for ask in (made.asked, made.serving):
        with pytest.raises(RequestError, match="does not allow"):
            ask("chat")


def test_what_models_yaml_names_and_nobody_has_seen_is_a_metric():
    registry = Registry(DEPLOYED)
    registry.serve([UNNAMED, WEST])
    _, unseen = ModelInfo(registry).collect()
    [sample] = unseen.samples
    assert sample.labels == {"pool": "default", "triton_model": "chat"}
