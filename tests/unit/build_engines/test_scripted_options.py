"""models.yaml: a script belongs to the scripted runtime, and to no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from build_engines import role_parameters
from build_engines.facts import Facts
from build_engines.models_file import ModelsFile, ScriptedEntry

SCRIPT = {"text": "Hello!"}
FACTS = Facts(
    context_length=1000, vocab_size=10, end_ids=(1,), chat_template=None, bos_token="",
    eos_token="", strips_leading_space=False, special_tokens={}, created=0, kv_token_bytes=0,
)  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {"runtime": "scripted"},
        {"scripted": SCRIPT},
        {"runtime": "onnx", "scripted": SCRIPT},
        {"runtime": "scripted", "scripted": {"text": ""}},
        {"runtime": "scripted", "scripted": {**SCRIPT, "step_ms": -1}},
        {"runtime": "scripted", "scripted": {**SCRIPT, "pace": 1}},
    ],
)
def test_a_half_or_wrong_script_is_refused(fields):
    with pytest.raises(ValidationError, match="scripted"):
        ModelsFile.model_validate({"models": {"m": {"weights": "w", **fields}}})


def test_the_queue_is_bounded_and_the_bound_may_be_given():
    def most(**fields) -> str:
        entry = ScriptedEntry(weights=Path("w"), runtime="scripted", scripted=SCRIPT, **fields)
        return role_parameters.scripted("m", entry, FACTS)["engine"]["max_unfinished"]

    assert most(max_queue=7) == "7"
    assert int(most()) > 10_000


def test_disabled_kinds_of_guides_are_not_among_those_that_the_tokenizer_accepts():
    entry = ScriptedEntry(
        weights=Path("w"), runtime="scripted", scripted=SCRIPT, disabled_guides=("ebnf_grammar",)
    )
    kinds = role_parameters.scripted("m", entry, FACTS)["tokenizer"]["guide_kinds"]
    assert kinds == "json,json_schema,regex,structural_tag"
