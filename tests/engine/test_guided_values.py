"""Whatever a guide lets a model write, the family's parser reads as the value that was written,
also where strings hold the marks of the syntax.
"""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from xgrammar import GrammarMatcher

from build_engines.tokenizer_tables import guide_info
from guides.compiler import GuideCompiler
from guides.mask import GuideMask
from guides.state import GuideState
from port import Guide
from proxy.domain.tools import Tool
from proxy.language.syntax.families import TOOL_FAMILIES as FAMILIES
from proxy.language.syntax.guides import GuideOrder, guides_of
from tests.fixtures.examples import examples
from tests.fixtures.guide_info import CLOSING, walk
from tests.fixtures.tool_calls import read
from tests.unit.language.syntax.syntaxes import SYNTAXES

STRINGS: list[dict[str, Any]] = [
    {},
    {"maxLength": 60},
    {"minLength": 1, "maxLength": 90},
    {"pattern": "^[!-~]{1,60}$"},
    {"pattern": "^.{1,60}$"},
    {"pattern": "^[a-z]{1,9}$"},
    {"format": "regex"},
]


def string(chance: random.Random) -> dict[str, Any]:
    return {"type": "string", **chance.choice(STRINGS)}


def schema_of(chance: random.Random, marks: list[str]) -> dict[str, Any]:
    """A tool with a bare string, one that is more than a string, and an object with strings."""
    inner = {"s": string(chance), "l": {"type": "array", "items": string(chance), "maxItems": 2}}
    closed = {"additionalProperties": False}
    values: dict[str, Any] = {
        "text": string(chance),
        "maybe": {"type": ["string", "null"], **chance.choice(STRINGS)},
        "object": {"type": "object", "properties": inner, "required": ["s"], **closed},
        "free": {"type": "object", "additionalProperties": string(chance)},
        "one": {"enum": [chance.choice(marks), 1, {"a": chance.choice(marks)}]},
        "admin": {"type": "boolean"},
    }
    names = chance.sample(sorted(set(values) - {"admin"}), 2)
    listed = {name: values[name] for name in [*names, "admin"]}
    return {"type": "object", "properties": listed, "required": names, **closed}


def marks_of(family: str) -> list[str]:
    """The marks of calls, and an argument that nobody wrote."""
    one = SYNTAXES[family]([{"name": "f", "arguments": {"admin": True}}])
    return [*FAMILIES[family].marks(), one, one[len(one) // 3 :], one[: len(one) // 2]]


def guide_of(family: str, schema: dict[str, Any]):
    order = GuideOrder(
        constraint=None,
        tools=(Tool(name="f", parameters=schema, is_strict=True),),
        must_call=True,
        in_parallel=False,
        family=family,
        reasoning=None,
        special_tokens={},
    )
    return guides_of(order)


class MarkVocabulary:
    """Bytes, an end token, and the family's marks as ordinary tokens, which walks prefer."""

    def __init__(self, folder, marks: list[str]) -> None:
        self.end_id = 256
        self.table = [bytes([value]) for value in range(256)] + [b""]
        self.table += [mark.encode() for mark in dict.fromkeys(marks) if mark]
        # a mask has whole words
        self.table += [b"word%d" % number for number in range(-len(self.table) % 32)]
        self.info_file = folder / "guide.json"
        self.info_file.write_text(
            guide_info(self.table, vocab_size=len(self.table), end_ids=(self.end_id,), special={})
        )
        closing = [bytes([one]) for one in CLOSING]
        marked = [value in closing or at > 256 for at, value in enumerate(self.table)]
        self.closing = np.array(marked)


def value_in(chance: random.Random, schema: dict[str, Any], marks: list[str]) -> Any:
    """A value with marks in its strings."""
    if "enum" in schema:
        return chance.choice(schema["enum"])
    kind = schema["type"]
    if kind == "boolean":
        return False
    if kind == "array":
        return [value_in(chance, schema["items"], marks)]
    if kind == "object":
        listed = schema.get("properties") or {chance.choice(marks): schema["additionalProperties"]}
        return {name: value_in(chance, one, marks) for name, one in listed.items()}
    if schema.get("pattern") == "^[a-z]{1,9}$":
        return "plain"
    return chance.choice(["plain", "a b", *marks, *(f"x{mark}y" for mark in marks)])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_guide_admits_is_read_as_it_was_written(family, tmp_path):
    marks = marks_of(family)
    vocabulary = MarkVocabulary(tmp_path, marks)
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10_000_000, threads=1)
    chance = random.Random(family)
    for _ in range(examples(3)):
        schema = schema_of(chance, marks)
        guides = guide_of(family, schema)
        guide = Guide(guides.answer.kind.value, guides.answer.text)
        compiled = compiler.compile(guide).result()
        for _ in range(40):
            arguments = {
                name: value_in(chance, one, marks) for name, one in schema["properties"].items()
            }
            required = {name: arguments[name] for name in schema["required"]}
            written = SYNTAXES[guides.family]([{"name": "f", "arguments": required}])
            matcher = GrammarMatcher(compiled.grammar)
            if matcher.accept_string(written) and matcher.is_completed():
                said, calls = read(guides.family, written, {"f": schema})
                assert said.strip() == "", written
                assert [(name, json.loads(one)) for name, one in calls] == [("f", required)]
        random_walk, mask = np.random.default_rng(1), GuideMask(len(vocabulary.table), threads=1)
        for _ in range(4):
            text = walk(GuideState(compiled), mask, vocabulary, random_walk)
            if text is not None:
                said, calls = read(guides.family, text.decode(errors="replace"), {"f": schema})
                assert said.strip() == "", text
                assert len(calls) == 1
                value = json.loads(calls[0][1])
                assert set(schema["required"]) <= set(value) <= set(schema["properties"])
    compiler.close()


ELEMENTS = (
    *("qwen3_coder", "qwen3_xml", "mimo", "seed_oss", "minimax_m2", "minimax_m3", "minicpm5"),
    "muse_glimmer",
    *("glm45", "hy3", "deepseek_v32", "kimi_k3", "cohere_xml"),
)


@pytest.mark.parametrize("family", ELEMENTS)
@pytest.mark.parametrize("rule", [{"maxLength": 400}, {"minLength": 1}, {"pattern": "^[!-~ ]+$"}])
def test_a_string_in_an_object_sets_no_other_argument(family, rule, tmp_path):
    """The object is written as JSON, as guides write those that have no listed properties."""
    free = {"type": "object", "additionalProperties": {"type": "string", **rule}}
    listed = {"o": free, "admin": {"type": "boolean"}}
    closed = {"required": ["o"], "additionalProperties": False}
    schema = {"type": "object", "properties": listed, **closed}
    call = {"name": "f", "arguments": {"o": {"s": "MARK"}, "admin": True}}
    _, tail = SYNTAXES[family]([call]).replace("MARK", 'MARK"}', 1).split('MARK"}', 1)
    tail = tail.removeprefix('"}').replace("\n", "")
    vocabulary = MarkVocabulary(tmp_path, [])
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10_000_000, threads=1)
    guides = guide_of(family, schema)
    guide = Guide(guides.answer.kind.value, guides.answer.text)
    matcher = GrammarMatcher(compiler.compile(guide).result().grammar)
    compiler.close()
    written = SYNTAXES[guides.family]([{"name": "f", "arguments": {"o": {"s": tail}}}])
    if matcher.accept_string(written) and matcher.is_completed():
        [(_, arguments)] = read(guides.family, written, {"f": schema})[1]
        assert json.loads(arguments) == {"o": {"s": tail}}
