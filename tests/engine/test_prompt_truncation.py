"""A truncated text has the tokens that its tokens have when they are truncated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from prompt_encoder import PromptTruncation

DEMO = Path(__file__).parents[2] / "demo_model" / "shipped" / "tokenizer.json"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The demo model's, with a BOS as Llama's has it."""
    made = Tokenizer.from_file(str(DEMO))
    bos = next(iter(made.get_added_tokens_decoder().values())).content
    made.post_processor = TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, made.token_to_id(bos))]
    )
    return made


@given(
    words=st.lists(st.sampled_from(["Hello", " wörld", "\n", " 12", "…", " the"]), max_size=2000),
    tokens=st.integers(1, 200),
    keeps_start=st.booleans(),
    special=st.booleans(),
)
def test_only_the_lost_end_is_missing(tokenizer, words, tokens, keeps_start, special):
    text = "".join(words)
    truncation = PromptTruncation(tokens=tokens, keeps_start=keeps_start)
    found = truncation.of_text(tokenizer, text, add_special_tokens=special)
    content = tokenizer.encode(text, add_special_tokens=False).ids
    bos = tokenizer.encode("").ids if special else []
    room = tokens - len(bos)
    kept = content[:room] if keeps_start else content[len(content) - min(room, len(content)) :]
    assert found == [*bos, *kept]


def test_a_long_text_is_not_tokenized_whole(tokenizer):
    seen = []

    class Counting:
        def __getattr__(self, name):
            return getattr(tokenizer, name)

        def encode(self, text, **fields):
            seen.append(len(text))
            return tokenizer.encode(text, **fields)

    text = "word " * 1_000_000
    truncation = PromptTruncation(tokens=50, keeps_start=False)
    assert len(truncation.of_text(Counting(), text, add_special_tokens=True)) == 50
    assert sum(seen) < 10_000
