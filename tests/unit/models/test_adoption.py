"""Models that others built, as the registry serves them with and without an entry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from build_engines.models_file import ModelsFile, ModelsFileError, RemoteEntry, load
from proxy.domain.engine import NotReady
from proxy.domain.model import Adopted, Kind, LoadedModel
from proxy.models.registry import Registry
from tests.doubles.engine import FACTS

DEMO = Path("demo_model/shipped").absolute()
TEXT = {"PROMPT": "BYTES", "MAX": "INT32"}


def other(name: str, kind: Kind = Kind.VLLM, inputs=None) -> LoadedModel:
    takes = {"max_tokens"} if kind is not Kind.TEXT else set()
    adopted = Adopted(
        kind=kind, inputs=inputs or {"text_input": "BYTES"}, outputs={"OUTPUT": "BYTES"},
        has_batches=False, is_decoupled=True,
    )  # fmt: skip
    facts = replace(
        FACTS, adopted=adopted, chat_template=None, engine_model=name, tokenizer_model=name,
        detokenizer_model=name, says_context=False, adapters=(),
    )  # fmt: skip
    return LoadedModel(name=name, facts=facts, capabilities=frozenset({"seed", *takes}))


def served(entries: dict, *models: LoadedModel) -> Registry:
    policy = ModelsFile.model_validate({"models": entries}).models if entries else {}
    made = Registry(policy)
    made.serve(models)
    return made


def test_without_an_entry_a_model_is_served_under_tritons_name_without_a_chat_template():
    (card,) = served({}, other("qwen_vllm")).cards()
    assert (card.name, card.facts.chat_template, card.facts.says_context) == (
        "qwen_vllm",
        None,
        False,
    )
    assert card.capabilities == {"seed", "max_tokens"}


def test_a_file_gives_a_chat_template_to_a_model_without_a_tokenizer():
    entry = RemoteEntry(adopt="qwen_vllm").model_copy(update={"chat_template": "{{ messages }}"})
    made = Registry({"qwen": entry})
    made.serve([other("qwen_vllm")])
    (card,) = made.cards()
    assert (card.facts.chat_template, card.takes_templates) == ("{{ messages }}", False)
    assert card.loaded.chat_template is None


def test_the_entry_adds_what_the_model_does_not_carry():
    entry = {"adopt": "qwen_vllm", "tokenizer": str(DEMO), "rows": 8, "adapters": ["sql"],
             "sampling": {"max_tokens": 50}}  # fmt: skip
    made = served({"qwen": entry}, other("qwen_vllm"))
    card, adapter = made.every_card()
    assert card.facts.chat_template == (DEMO / "chat_template.jinja").read_text()
    assert (card.facts.context_length, card.facts.says_context) == (4096, True)
    assert (card.facts.default_max_tokens, card.facts.rows) == (50, 8)
    assert card.capabilities == {"seed", "max_tokens", "limits", "prompt_token_ids"}
    assert (adapter.name, adapter.parent) == ("sql", "qwen")
    assert (card.triton_model, card.facts.adopted.tokenizer) == ("qwen_vllm", str(DEMO))
    assert made.said_rows(card.loaded) == 8


def test_a_text_model_needs_an_entry_with_tensors_that_it_has():
    model, inputs = other("team", Kind.TEXT, TEXT), {"max_tokens": "MAX", "seed": "SEED"}
    with pytest.raises(NotReady, match="no model that is known"):
        served({}, model)
    tensors = {"prompt": "PROMPT", "text": "OUTPUT", "inputs": inputs}
    with pytest.raises(NotReady):
        served({"team": {"adopt": "team", "tensors": tensors}}, model)
    inputs["seed"] = "PROMPT"  # which takes no number
    with pytest.raises(NotReady):
        served({"team": {"adopt": "team", "tensors": tensors}}, model)
    inputs["seed"] = "MAX"
    (card,) = served({"team": {"adopt": "team", "tensors": tensors}}, model).cards()
    assert card.capabilities == {"seed", "max_tokens"}


def test_a_text_model_without_a_tensor_for_max_tokens_takes_no_limit_on_the_answer():
    entry = {"adopt": "team", "tokenizer": str(DEMO),
             "tensors": {"prompt": "PROMPT", "text": "OUTPUT"}}  # fmt: skip
    (card,) = served({"team": entry}, other("team", Kind.TEXT, TEXT)).cards()
    assert card.capabilities == {"seed", "prompt_token_ids"}
    with pytest.raises(NotReady, match="cannot enforce the limits"):
        served({"team": {**entry, "limits": {"max_tokens": 5}}}, other("team", Kind.TEXT, TEXT))


def test_kserve_is_closed_to_models_that_are_served_and_open_to_others():
    made = served({}, other("qwen_vllm"), other("team", Kind.TEXT, TEXT))
    assert made.internal_models() == {"qwen_vllm"}


def test_one_name_can_have_a_model_of_others_and_one_of_ours():
    deployments = [{"name": "vllm", "model": "qwen_vllm", "weight": 1},
                   {"name": "ours", "model": "qwen", "weight": 1}]  # fmt: skip
    entry = {"adopt": "qwen_vllm", "tokenizer": str(DEMO), "deployments": deployments}
    made = served({"chat": entry}, other("qwen_vllm"), LoadedModel(name="qwen", facts=FACTS))
    assert {card.facts.kind for card in made.every_card()} == {Kind.VLLM, Kind.OWN}
    own = next(card for card in made.every_card() if card.facts.kind is Kind.OWN)
    assert own.facts == FACTS


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("{runtime: remote, tokenizer: x}", "add `adopt`"),
        ("{adopt: a, tensors: {prompt: P}}", "text"),
        ("{adopt: a, tensors: {prompt: P, text: T, inputs: {logit_bias: B}}}", "logit_bias"),
        ("{adopt: a, rows: 0}", "rows"),
        ("{adopt: a, weights: x}", "adopt"),
    ],
)
def test_entries_that_make_no_sense(tmp_path, entry, reason):
    file = tmp_path / "models.yaml"
    file.write_text(f"models:\n  a: {entry}\n")
    with pytest.raises(ModelsFileError, match=reason):
        load(file)


def test_a_tokenizer_is_relative_to_the_file(tmp_path):
    file = tmp_path / "models.yaml"
    file.write_text("models:\n  a: {adopt: a, tokenizer: folder}\n")
    assert load(file).models["a"].tokenizer == tmp_path / "folder"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, ("ids", False)),
        ({"continue": "text"}, ("text", False)),
        ({"continue": "none", "prefix_cache": "shared"}, ("none", True)),
    ],
)
def test_the_entry_says_how_answers_continue_and_who_shares_prefixes(entry, expected):
    (card,) = served({"qwen": {"adopt": "qwen_vllm", **entry}}, other("qwen_vllm")).cards()
    adopted = card.facts.adopted
    assert (adopted.continues, adopted.shares_prefixes) == expected


@pytest.mark.parametrize("entry", [{"continue": "maybe"}, {"continues": "text"}])
def test_a_wrong_word_is_refused(entry):
    with pytest.raises(ValidationError):
        ModelsFile.model_validate({"models": {"qwen": {"adopt": "qwen_vllm", **entry}}})
