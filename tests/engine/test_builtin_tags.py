"""xgrammar's structural tags of models as the oracle: what our guides write they accept, and what
they write our parsers read.
"""

from __future__ import annotations

import json

import jsonschema_rs
import numpy as np
import pytest
from xgrammar import GrammarMatcher, get_model_structural_tag

from guides.mask import GuideMask
from guides.state import GuideState
from port import Guide
from proxy.domain.tools import Tool
from proxy.language.structured.structural_tags import WHITESPACE_AT_MOST
from proxy.language.syntax.guides import argument_schemas
from tests.engine.test_tool_guides import REQUIRED, answers, call_guide
from tests.fixtures.guide_info import VOCAB_SIZE, walk
from tests.fixtures.tool_calls import read

# xgrammar's name of each family's syntax.
NAMES = {
    "hermes": "qwen_3",
    "exaone": "exaone",
    "qwen3_coder": "qwen_3_coder",
    "mimo": "mimo",
    "glm45": "glm_4_7",
    "deepseek_v3": "deepseek_r1",
    "deepseek_v31": "deepseek_v3_1",
    "deepseek_v32": "deepseek_v3_2",
    "minimax_m2": "minimax",
    "minimax_m3": "minimax_m3",
    "kimi_k2": "kimi",
    "kimi_k3": "kimi_k3",
    "cohere_xml": "cohere",
    "llama3_json": "llama",
}
# What an answer has around its calls.
AROUND = {
    "minimax_m2": ("\n</think>\n\n\n\n\n", ""),
    "deepseek_v32": ("\n\n", ""),
    "kimi_k3": ("", "<|close|>message<|sep|>"),
}


def tools_with(text: dict[str, object]) -> tuple[Tool, ...]:
    """`text`: the schema of strings. Some of the tags refuse lengths."""
    stop = {
        "type": "object",
        "properties": {
            "at": text,
            "hours": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
        },
        "required": ["at", "hours"],
        "additionalProperties": False,
    }
    trip = {
        "type": "object",
        "properties": {
            "city": text,
            "days": {"type": "integer", "minimum": 1, "maximum": 30},
            "is_return": {"type": "boolean"},
            "stops": {"type": "array", "items": stop, "maxItems": 2},
            "note": {"anyOf": [{"type": "null"}, {"enum": [1, 2]}]},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    }
    return Tool(name="plan.trip", parameters=trip, is_strict=True), Tool(name="ping")


def compiled(family: str, tools: tuple[Tool, ...], compiler):
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in argument_schemas(tools).items()
    ]
    found = get_model_structural_tag(
        NAMES[family],
        tools=tools,
        tool_choice="required",
        reasoning="disabled",
        max_whitespace_cnt=WHITESPACE_AT_MOST,
    )
    return compiler.compile(Guide("structural_tag", found.model_dump_json())).result()


@pytest.mark.parametrize("family", NAMES)
def test_what_a_guide_writes_is_the_syntax_that_xgrammar_knows(family, compiler, vocabulary):
    tools = tools_with({"enum": ["Paris", "a b"]})
    builtin = compiled(family, tools, compiler)
    before, after = AROUND.get(family, ("", ""))
    guide = call_guide(family, tools, REQUIRED, in_parallel=True)
    texts = answers(guide, compiler, vocabulary)
    assert texts
    for text in texts:
        matcher = GrammarMatcher(builtin.grammar)
        assert matcher.accept_string(before + text + after), text
        assert matcher.is_completed()


# Kimi K3's tag begins with free text, whose end a walk does not find.
@pytest.mark.parametrize("family", sorted(set(NAMES) - {"kimi_k3"}))
def test_what_xgrammar_s_tag_writes_is_read(family, compiler, vocabulary):
    tools = tools_with({"type": "string"})
    schemas = argument_schemas(tools)
    builtin = compiled(family, tools, compiler)
    random, mask = np.random.default_rng(0), GuideMask(VOCAB_SIZE, threads=1)
    walks = [walk(GuideState(builtin), mask, vocabulary, random) for _ in range(20)]
    found = [text.decode(errors="replace") for text in walks if text is not None]
    assert found
    for text in found:
        calls = read(family, text, schemas)[1]
        assert calls, text
        for name, arguments in calls:
            assert jsonschema_rs.is_valid(schemas[name], json.loads(arguments)), text
