"""Tool guides: what a model under one can write, its family's parser reads as calls that conform."""

from __future__ import annotations

import json

import jsonschema_rs
import numpy as np
import pytest
from guide_compiler import GuideCompiler
from guide_state import GuideMask, GuideState
from port import Guide

from proxy.domain.events import TextDelta, ToolCallArguments, ToolCallStarted
from proxy.domain.tools import Tool, ToolChoice, ToolMode
from proxy.structured.tool_guides import NO_ARGUMENTS, tool_constraint
from proxy.tools.families import FAMILIES
from tests.fixtures.guide_info import VOCAB_SIZE, DemoVocabulary, walk

WALKS = 12
REQUIRED, AUTO = ToolChoice(mode=ToolMode.REQUIRED), ToolChoice()
TRIP = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 6},
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "by": {"enum": ["train", "car"]},
        "is_return": {"type": "boolean"},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/Stop"}, "maxItems": 2},
        "note": {"anyOf": [{"type": "null"}, {"enum": ["a b", "1"]}]},
    },
    "required": ["city", "days", "by", "is_return"],
    "additionalProperties": False,
    "$defs": {
        "Stop": {
            "type": "object",
            "properties": {
                "at": {"enum": ["x", "y"]},
                "hours": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
            },
            "required": ["at", "hours"],
            "additionalProperties": False,
        }
    },
}
OPTIONAL = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}, "b": {"enum": ["x"]}, "c": {"type": "boolean"}},
    "additionalProperties": False,
}
TOOLS = (
    Tool(name="plan.trip", parameters=TRIP, is_strict=True),
    Tool(name="set", parameters=OPTIONAL, is_strict=True),
    Tool(name="ping"),
)
SCHEMAS = {tool.name: tool.parameters or NO_ARGUMENTS for tool in TOOLS}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> DemoVocabulary:
    return DemoVocabulary(tmp_path_factory.mktemp("guides"))


@pytest.fixture(scope="module")
def compiler(vocabulary):
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10_000_000, threads=1)
    yield compiler
    compiler.close()


def answers(guide, compiler, vocabulary, seed: int = 0) -> list[str]:
    """What random walks under the guide end with."""
    compiled = compiler.compile(Guide(guide.constraint.kind.value, guide.constraint.text)).result()
    random, mask = np.random.default_rng(seed), GuideMask(VOCAB_SIZE, threads=1)
    walks = [walk(GuideState(compiled), mask, vocabulary, random) for _ in range(WALKS)]
    return [text.decode() for text in walks if text is not None]


def read(family: str, text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text and the calls in it, read character by character."""
    parser = FAMILIES[family].make(SCHEMAS)
    events = [event for char in text for event in parser.push(char)] + parser.flush()
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    calls = [[event.name, ""] for event in events if isinstance(event, ToolCallStarted)]
    for event in events:
        if isinstance(event, ToolCallArguments):
            calls[event.index][1] += event.fragment
    return said, [(name, arguments) for name, arguments in calls]


def assert_conform(calls: list[tuple[str, str]]) -> None:
    for name, arguments in calls:
        value = json.loads(arguments)
        assert jsonschema_rs.is_valid(SCHEMAS[name], value), (name, arguments)


@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_is_written_under_required_is_calls_that_conform(family, compiler, vocabulary):
    guide = tool_constraint(family, TOOLS, REQUIRED, in_parallel=True)
    texts = answers(guide, compiler, vocabulary)
    assert len(texts) >= WALKS // 2
    names = set()
    for text in texts:
        said, calls = read(guide.family, text)
        assert said.strip() == "", text
        assert calls, text
        assert_conform(calls)
        names |= {name for name, _ in calls}
    assert len(names) > 1
