"""Facts: what is written is read back, and goes to the proxy as strings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from build_engines.facts import Facts

FACTS = Facts(
    context_length=8, vocab_size=10, end_ids=(1, 2), chat_template=None, bos_token="",
    eos_token="", strips_leading_space=False, special_tokens={3: "<s>"}, created=0,
    kv_token_bytes=0,
)  # fmt: skip
WHOLE = replace(FACTS, chat_template="a", tool_template="b", infilling=("<p>", "<s>", "<m>"))


@pytest.mark.parametrize("facts", [FACTS, WHOLE])
def test_what_is_written_is_read_back(facts: Facts, tmp_path: Path) -> None:
    facts.write(tmp_path / "facts.json")
    assert Facts.read(tmp_path / "facts.json") == facts


def test_what_a_model_does_not_have_is_no_parameter() -> None:
    found = WHOLE.as_parameters().keys() - FACTS.as_parameters().keys()
    assert found == {"chat_template", "tool_template", "fim_prefix", "fim_suffix", "fim_middle"}
