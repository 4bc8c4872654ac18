"""Tool guides of a tokenizer that has the syntax's marks as special tokens."""

from __future__ import annotations

import numpy as np
import pytest

from build_engines.tokenizer_tables import guide_info
from guides.compiler import GuideCompiler
from guides.mask import GuideMask
from guides.state import GuideState
from port import Guide
from proxy.domain.tools import ToolChoice
from proxy.language.syntax.special_tokens import InexpressibleTokens, with_token_ids
from proxy.language.syntax.tools.call_guides import call_guide
from tests.fixtures.guide_info import CLOSING, walk
from tests.fixtures.tool_calls import AUTO, REQUIRED, TOOLS, assert_conform, read

WALKS = 12
MARKS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "granite": ("<|tool_call|>",),
    "gemma4": ("<|tool_call>", "<tool_call|>"),
    "internlm": ("<|action_start|>", "<|action_end|>", "<|plugin|>"),
    "kimi_k2": (
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
        *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    "deepseek_v31": (
        *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
        *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    ),
    "harmony": ("<|channel|>", "<|message|>", "<|constrain|>"),
    "qwen3_coder": ("<tool_call>", "</tool_call>"),
}


class SpecialVocabulary:
    """Bytes, an end token, and marks that are special tokens."""

    def __init__(self, folder, marks: tuple[str, ...]) -> None:
        self.end_id = 256
        self.special = {257 + at: mark for at, mark in enumerate(marks)}
        hidden = [bytes([value]) for value in range(256)] + [b""] * (1 + len(marks))
        self.info_file = folder / "guide.json"
        self.info_file.write_text(
            guide_info(hidden, vocab_size=len(hidden), end_ids=(self.end_id,), special=self.special)
        )
        self.table = [*hidden[:257], *(mark.encode() for mark in marks)]
        self.closing = np.array([value in [bytes([one]) for one in CLOSING] for value in hidden])


def special_walks(family: str, choice: ToolChoice, folder) -> list[str]:
    vocabulary = SpecialVocabulary(folder, MARKS[family])
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10_000_000, threads=1)
    guide = call_guide(family, TOOLS[1:], choice, in_parallel=True)
    specials = {token: mark.encode() for token, mark in vocabulary.special.items()}
    constraint = with_token_ids(guide.constraint, specials)
    compiled = compiler.compile(Guide(constraint.kind.value, constraint.text)).result()
    random, mask = np.random.default_rng(0), GuideMask(len(vocabulary.table), threads=1)
    walks = [walk(GuideState(compiled), mask, vocabulary, random) for _ in range(WALKS)]
    compiler.close()
    return [text.decode(errors="replace") for text in walks if text is not None]


@pytest.mark.parametrize("family", MARKS)
def test_marks_that_are_special_tokens_come_as_tokens(family, tmp_path):
    texts = special_walks(family, REQUIRED, tmp_path)
    assert texts
    for text in texts:
        said, calls = read(family, text)
        assert said.strip() == "", text
        assert calls, text
        assert_conform(calls)


@pytest.mark.parametrize("family", sorted(set(MARKS) - {"harmony"}))
def test_with_auto_a_special_token_begins_the_calls(family, tmp_path):
    for text in special_walks(family, AUTO, tmp_path):
        assert_conform(read(family, text)[1])


def test_free_text_cannot_go_on_from_half_of_a_beginning():
    guide = call_guide("harmony", TOOLS, AUTO, in_parallel=True)
    with pytest.raises(InexpressibleTokens, match="special token"):
        with_token_ids(guide.constraint, {5: b"<|channel|>"})


def test_without_special_tokens_in_it_a_guide_stays_as_it_is():
    guide = call_guide("hermes", TOOLS, REQUIRED, in_parallel=True)
    assert with_token_ids(guide.constraint, {5: b"<|im_end|>", 6: b""}) is guide.constraint
