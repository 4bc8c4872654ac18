"""The shipped demo model: its size, its tokens, and that it is served without the build tools."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from build_engines.build import build_all, needing_tools
from build_engines.facts import Facts
from build_engines.models_file import ModelsFile, OnnxEntry
from build_engines.tokenizer_tables import FILES
from tests.fixtures.demo_folder import BUILT, FOLDER, TRAINED


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def test_the_folder_is_small_and_has_its_weights_once() -> None:
    assert {file.name for file in FOLDER.iterdir()} == TRAINED | BUILT
    config = json.loads((FOLDER / "config.json").read_text())
    assert config["max_position_embeddings"] >= 4096
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 12_000_000


def test_its_facts_are_those_of_its_configs() -> None:
    facts = Facts.read(FOLDER / "facts.json")
    config = json.loads((FOLDER / "config.json").read_text())
    layers, heads = config["num_hidden_layers"], config["num_key_value_heads"]
    assert facts.context_length == config["max_position_embeddings"]
    assert facts.vocab_size == config["vocab_size"]
    assert list(facts.end_ids) == config["eos_token_id"]
    assert facts.chat_template == (FOLDER / "chat_template.jinja").read_text()
    assert facts.kv_token_bytes == math.prod((2, layers, heads, config["head_dim"], 4))


def test_it_is_served_without_the_build_tools(tmp_path: Path) -> None:
    models = ModelsFile(models={"demo": OnnxEntry(weights=FOLDER)})
    assert needing_tools(models, tmp_path) == []
    build_all(models, tmp_path, say=lambda _: None)
    for name in FILES:
        assert (tmp_path / "demo" / name).read_bytes() == (FOLDER / name).read_bytes()
    assert (tmp_path / "demo" / "engine").resolve() == FOLDER


def test_a_shorter_context_is_in_the_facts(tmp_path: Path) -> None:
    entry = OnnxEntry(weights=FOLDER, context_length=512)
    build_all(ModelsFile(models={"demo": entry}), tmp_path, say=lambda _: None)
    assert Facts.read(tmp_path / "demo" / "facts.json").context_length == 512
    assert "context_length" in (tmp_path / "model_repository/demo/config.pbtxt").read_text()


def test_both_end_tokens_end_an_answer(tokenizer: Tokenizer) -> None:
    ends = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    assert json.loads((FOLDER / "generation_config.json").read_text())["eos_token_id"] == ends


def test_tool_call_marks_are_single_tokens_that_decoding_keeps(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<tool_call>{}</tool_call>", add_special_tokens=False).ids
    assert ids[0] == tokenizer.token_to_id("<tool_call>")
    assert ids[-1] == tokenizer.token_to_id("</tool_call>")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<tool_call>{}</tool_call>"


@settings(max_examples=300, deadline=None)
@given(text=st.text())
def test_any_text_comes_back_from_its_tokens(text: str) -> None:
    loaded = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    ids = loaded.encode(text, add_special_tokens=False).ids
    assert loaded.decode(ids, skip_special_tokens=False) == text
