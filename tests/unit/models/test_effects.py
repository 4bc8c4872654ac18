"""Every option of an entry for a Triton model of each kind has an effect, or is refused by name."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from build_engines.models_file import ModelsFile, RemoteEntry
from proxy.domain.engine import NotReady
from proxy.domain.errors import ModelUnavailable
from proxy.domain.model import Adopted, Kind, LoadedModel, ModelCard, Pooling
from proxy.models.registry import Registry
from proxy.triton.dialects.recognition import recognized
from tests.doubles.engine import FACTS
from tests.fixtures.adopted import record
from tests.unit.models.test_adoption import DEMO, TEXT, other

STEPS = ("engine", "preprocessing", "postprocessing")
TENSORS = {"prompt": "PROMPT", "text": "OUTPUT", "inputs": {"max_tokens": "MAX"}}


def recorded(name: str) -> LoadedModel:
    config = record(name)
    found = recognized(config, {one.name: one for one in (config, *map(record, STEPS))})
    assert found is not None
    return replace(found.model, name="theirs")


def embedding() -> LoadedModel:
    given = Adopted(
        kind=Kind.EMBEDDING, inputs={}, outputs={}, has_batches=False, is_decoupled=False
    )
    pooling = Pooling(is_cross_encoder=False, width=4)
    return LoadedModel(name="theirs", facts=replace(FACTS, adopted=given, pooling=pooling))


MODELS = {
    "own": LoadedModel(name="theirs", facts=FACTS),
    "embedding": embedding(),
    "text": other("theirs", Kind.TEXT, TEXT),
    **{name: recorded(name) for name in ("vllm", "llmapi", "llmapi_old", "ensemble", "bls")},
}
TOOL = {"url": "http://tools/f", "description": "f", "parameters": {"type": "object"}}
# What else an option needs.
OTHERS: dict[str, dict[str, Any]] = {
    "lifecycle_link": {"sunset": "2099-01-01"},
    "shadow": {"deployments": [{"name": "a", "model": "theirs"}, {"name": "b", "model": "theirs"}]},
}
VALUES: dict[str, Any] = {
    "aliases": ["more"],
    "owned_by": "us",
    "chat_template_kwargs": False,
    "chat_template": True,
    "callers_control_tokens": "special",
    "tool_parser": "hermes",
    "reasoning_parser": "deepseek_r1",
    "server_tools": {"f": TOOL},
    "max_tool_rounds": 7,
    "max_tool_seconds": 7.0,
    "max_retries": 7,
    "stream_mode": "optimistic",
    "sampling": {"temperature": 0.5},
    "limits": {"timeout_s": 7.0},
    "price": {"input": 1, "output": 2},
    "deployments": [{"name": "more", "model": "theirs"}],
    "sticky": "user",
    "deprecated": "2026-01-01",
    "sunset": "2099-01-01",
    "lifecycle_link": "https://page/else",
    "fallback": "spare",
    "shadow": {"deployment": "b", "percent": 50},
    "tokenizer": str(DEMO),
    "context_length": 77,
    "rows": 7,
    "adapters": ["sql"],
    "tensors": {**TENSORS, "repeats_prompt": True},
    "prefix_cache": "shared",
    "continue": "text",
}
# They say which model it is.
NAMES = {"runtime", "adopt"}
# Not of an embedding model: the settings' defaults come the same way.
LEFT = {("embedding", "sampling")}


def served(kind: str, **entry: Any) -> Registry:
    entry = {"adopt": "theirs", **({"tensors": TENSORS} if kind == "text" else {}), **entry}
    spare = {"runtime": "remote"}
    policy = ModelsFile.model_validate({"models": {"ours": entry, "spare": spare}}).models
    made = Registry(policy)
    made.serve([MODELS[kind]])
    return made


def refusal(kind: str, **entry: Any) -> str | None:
    try:
        served(kind, **entry)
    except NotReady as error:
        return str(error)
    return None


def shown(made: Registry) -> Any:
    """All that the entry can change."""

    def of(card: ModelCard) -> dict[str, Any]:
        return {one.name: getattr(card, one.name) for one in fields(card)} | {"loaded": None}

    model = made.model("ours")
    return model.names, model.plan, model.fallback, [of(card) for card in made.every_card()]


def test_the_table_has_every_option():
    known = {one.alias or name for name, one in RemoteEntry.model_fields.items()}
    assert VALUES.keys() | NAMES == known


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("option", VALUES)
def test_an_option_has_an_effect_or_is_refused_by_name(option, kind):
    if (kind, option) in LEFT:
        return
    others = OTHERS.get(option, {})
    before = shown(served(kind, **others))
    if (refused := refusal(kind, **others, **{option: VALUES[option]})) is None:
        assert shown(served(kind, **others, **{option: VALUES[option]})) != before
    else:
        assert f"`{option}" in refused
        assert f"of the kind {MODELS[kind].facts.kind.value}" in refused


REFUSED = {
    "tokenizer": {"own", "embedding"},
    "context_length": {"own", "embedding"},
    "rows": {"own", "embedding"},
    "adapters": {*MODELS} - {"vllm"},
    "tensors": {*MODELS} - {"text"},
    "prefix_cache": {*MODELS} - {"vllm"},
    "continue": {"own", "embedding"},
    "chat_template": {"embedding"},
    "price": set(),
}


@pytest.mark.parametrize("option", REFUSED)
@pytest.mark.parametrize("kind", MODELS)
def test_refused_are_the_options_that_a_kind_cannot_have(option, kind):
    assert (refusal(kind, **{option: VALUES[option]}) is not None) == (kind in REFUSED[option])


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("value", ["apart", "shared"])
def test_also_the_default_that_an_operator_writes(value, kind):
    if kind == "vllm":
        served(kind, prefix_cache=value)
        return
    with pytest.raises(NotReady, match=f"`prefix_cache: {value}` of the model 'ours'"):
        served(kind, prefix_cache=value)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("tokenizer", [{}, {"tokenizer": str(DEMO)}])
def test_ids_continue_only_where_they_are_reported_and_known(kind, tokenizer):
    if kind == "vllm" and tokenizer:
        served(kind, **{"continue": "ids"}, **tokenizer)
        return
    with pytest.raises(NotReady, match=r"`continue: ids`|`tokenizer`"):
        served(kind, **{"continue": "ids"}, **tokenizer)


def test_an_option_is_for_any_of_the_deployments_also_one_that_is_not_there_yet():
    theirs = {"name": "a", "model": "theirs"}
    ours = {"name": "b", "model": "own"}
    entry = {"adopt": "theirs", "prefix_cache": "shared", "deployments": [theirs, ours]}
    made = Registry(ModelsFile.model_validate({"models": {"ours": entry}}).models)
    own = LoadedModel(name="own", facts=FACTS)
    made.serve([own])
    made.serve([own, MODELS["vllm"]])
    assert len([*made.every_card()]) == 2
    made = Registry(ModelsFile.model_validate({"models": {"ours": entry}}).models)
    with pytest.raises(NotReady, match=r"kind (own or llmapi|llmapi or own)"):
        made.serve([own, MODELS["llmapi"]])


def test_a_file_that_is_read_again_is_refused_as_well():
    made = served("llmapi")
    entry = {"adopt": "theirs", "adapters": ["sql"]}
    with pytest.raises(NotReady, match="`adapters` of the model 'ours'"):
        made.replace_policy(ModelsFile.model_validate({"models": {"ours": entry}}).models)
    assert not made.model("ours").cards[0].facts.adapters


BYSTANDER = LoadedModel(name="bystander", facts=FACTS)
ELSE = {"name": "else", "model": "else"}
SHARED = {"prefix_cache": "shared"}
LATER = replace(MODELS["llmapi"], name="else")
# Of an entry: its fields, what is loaded before and after, and what of it is still served.
CHANGES: dict[str, tuple[dict[str, Any], list[LoadedModel], list[LoadedModel], set[str]]] = {
    "another kind": (SHARED, [MODELS["vllm"]], [MODELS["llmapi"]], set()),
    "of our own": (SHARED, [MODELS["vllm"]], [MODELS["own"]], set()),
    "an adapter's": ({"adapters": ["sql"]}, [MODELS["vllm"]], [MODELS["llmapi"]], set()),
    "the first": (SHARED, [], [MODELS["llmapi"]], set()),
    "a second comes": (
        SHARED | {"deployments": [{"name": "a", "model": "theirs"}, ELSE]},
        [MODELS["llmapi"]],
        [MODELS["llmapi"], LATER],
        {"theirs"},
    ),
    "limits": (
        {"limits": {"max_tokens": 5}, "deployments": [{"name": "a", "model": "theirs"}, ELSE]},
        [replace(MODELS["own"], capabilities=frozenset({"limits"}))],
        [replace(MODELS["own"], capabilities=frozenset({"limits"})), LATER],
        {"theirs"},
    ),
}


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_comes_and_does_not_fit_stops_no_build_that_is_served(change, holds):
    """It is the only one that is not served, the reason is known, and the file can be repaired."""
    fields, before, after, still = CHANGES[change]
    entry = {"adopt": "theirs", "aliases": ["best"], **fields}
    made = Registry(ModelsFile.model_validate({"models": {"ours": entry}}).models, holds=holds)
    made.serve([BYSTANDER, *before])
    for _ in range(2):
        made.serve([BYSTANDER, *after])
        assert made.why_not_ready is None
        assert made.serving("bystander").card.loaded is FACTS
        assert {one.triton_model for one in made.every_card()} == {"bystander", *still}
        assert made.unfit.keys() == {"ours", *entry.get("adapters", ())}
        assert made.internal_models() >= {one.name for one in (BYSTANDER, *before, *after)}
        for name in () if still else ("ours", "best", *entry.get("adapters", ())):
            for ask in (made.serving, made.asked):
                with pytest.raises(ModelUnavailable, match=r"models.yaml does not fit"):
                    ask(name)
        made.serve([BYSTANDER, *before])  # it goes, and comes back
    made.serve([BYSTANDER, *after])
    repaired = ModelsFile.model_validate({"models": {"ours": {"adopt": "theirs"}}}).models
    made.replace_policy(repaired)
    assert not made.unfit
    assert made.serving("ours").card.loaded == after[0].facts
