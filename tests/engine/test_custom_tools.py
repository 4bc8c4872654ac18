"""Guides of custom tools: what a model can write under one is read as an input that conforms."""

from __future__ import annotations

import re

import numpy as np
import pytest
from lark import Lark
from xgrammar import GrammarMatcher

from grammars.compilation import as_ebnf
from port import Guide
from proxy.domain.tools import Tool
from proxy.language.syntax.families import TOOL_FAMILIES as FAMILIES
from tests.engine.test_tool_guides import walked_masks
from tests.fixtures.custom_tools import (
    APPLY_PATCH,
    CONFORMS,
    LARK,
    PATCHES,
    REGEX,
    TEXT,
    Walks,
    answer,
    guides,
)
from tests.fixtures.guide_info import VOCAB_SIZE
from tests.fixtures.tool_calls import TOOLS
from tests.unit.language.syntax.syntaxes import SYNTAXES

PYTHONIC = ("pythonic", "llama4_pythonic")
KINDS = {"text": TEXT, "regex": REGEX, "lark": LARK}


def walks(found, compiler, vocabulary) -> Walks:
    compiled = compiler.compile(Guide(found.answer.kind.value, found.answer.text)).result()
    return Walks(compiled.grammar, vocabulary.table[:VOCAB_SIZE], vocabulary.end_ids)


def texts(found, compiler, vocabulary, *, tries: int = 6, most: int = 200) -> list[str]:
    random = walks(found, compiler, vocabulary)
    return [one for one in (random.one(most) for _ in range(tries)) if one is not None]


def assert_conform(family: str, tools, written: str) -> int:
    """Returns how many calls there are."""
    whole = answer(family, tools, written, size=len(written))
    slow = answer(family, tools, written, size=1)
    inputs = [(call.name, call.arguments) for call in whole.calls]
    assert inputs == [(call.name, call.arguments) for call in slow.calls]
    for call in whole.calls:
        if call.name in CONFORMS:
            assert call.is_custom
            assert CONFORMS[call.name].fullmatch(call.arguments), (written, call.arguments)
    return len(inputs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_inputs_conform_where_a_tool_must_be_called(family, kind, compiler, vocabulary):
    tools = (KINDS[kind], *TOOLS[1:])
    found = guides(family, tools, must_call=True)
    assert found.family == family
    calls = [assert_conform(family, tools, text) for text in texts(found, compiler, vocabulary)]
    assert calls
    assert all(calls)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_named_tool_is_called_once_and_its_input_conforms(family, kind, compiler, vocabulary):
    tools = (KINDS[kind],)
    found = guides(family, tools, must_call=True, in_parallel=False)
    for text in texts(found, compiler, vocabulary, tries=3):
        assert assert_conform(family, tools, text) == 1, text


def accepts(found, compiler, text: str) -> bool:
    compiled = compiler.compile(Guide(found.answer.kind.value, found.answer.text)).result()
    matcher = GrammarMatcher(compiled.grammar)
    return matcher.accept_string(text) and matcher.is_completed()


@pytest.mark.parametrize("kind", ["regex", "lark"])
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(PYTHONIC)))
def test_text_is_free_and_a_call_once_begun_conforms(family, kind, compiler, vocabulary):
    tools = (KINDS[kind],)
    required = guides(family, tools, must_call=True, in_parallel=False)
    auto = guides(family, tools, must_call=False, in_parallel=False)
    assert accepts(auto, compiler, "Only text.\n")
    for text in texts(required, compiler, vocabulary, tries=4):
        assert accepts(auto, compiler, f"Text first.\n{text}"), text
        name = re.escape(tools[0].name)
        broken = re.sub(rf"({name}.*?)[<>;]", r"\1!", text, count=1, flags=re.DOTALL)
        assert broken == text or not accepts(auto, compiler, f"Text first.\n{broken}"), broken


@pytest.mark.parametrize("family", PYTHONIC)
def test_free_answers_of_pythonic_models_cannot_be_held(family):
    assert guides(family, (REGEX,), must_call=False).answer is None


@pytest.mark.parametrize("family", ["hermes", "qwen3_coder", "deepseek_v32"])
def test_a_function_beyond_the_syntax_stays_free_next_to_a_grammar(family, compiler):
    """Else the grammar could not hold."""
    beyond = Tool(
        name="odd",
        parameters={
            "type": "object",
            "properties": {"x": {"type": "string", "pattern": "^<[^a]>$"}},
            "required": ["x"],
        },
    )
    found = guides(family, (REGEX, beyond), must_call=False)
    assert found.family == family
    written = SYNTAXES[family]([{"name": "odd", "arguments": {"x": "<é>"}}])
    assert accepts(found, compiler, f"Text. {written}")
    assert not accepts(found, compiler, f"Text. {written[:-12]}")
    strict = Tool(name="odd", parameters=beyond.parameters, is_strict=True)
    is_held = guides(family, (REGEX, strict), must_call=False).answer is not None
    assert is_held is (family == "hermes")


def test_codexs_patches_conform_in_every_syntax(compiler, vocabulary):
    """Earley's parser of lark reads no terminal that may be empty, so `(.*)` becomes `(.+)?`."""
    lark = Lark(APPLY_PATCH.replace("/(.*)/", "/(.+)/?"))
    count = 0
    for family in FAMILIES:
        found = guides(family, (PATCHES,), must_call=True, in_parallel=False)
        for text in texts(found, compiler, vocabulary, tries=12, most=400):
            (call,) = answer(family, (PATCHES,), text, size=7).calls
            assert CONFORMS["apply_patch"].fullmatch(call.arguments), call.arguments
            lark.parse(call.arguments)
            count += 1
    assert count > 200


@pytest.mark.parametrize("kind", ["regex", "lark"])
@pytest.mark.parametrize("family", ["hermes", "pythonic", "qwen3_coder", "kimi_k3"])
def test_vllm_gets_a_grammar_that_allows_the_same_tokens(family, kind, compiler):
    guide = guides(family, (KINDS[kind], *TOOLS[1:]), must_call=True).answer
    first = compiler.compile(Guide(guide.kind.value, guide.text)).result().grammar
    second = compiler._compiler.compile_grammar(as_ebnf(guide.kind.value, guide.text))
    random = np.random.default_rng(1)
    assert max(walked_masks(first, second, random) for _ in range(4)) > 2
