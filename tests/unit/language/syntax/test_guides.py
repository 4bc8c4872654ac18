"""Guides: bounded in size, and built once for equal orders."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest
from proxy.domain.sandbox import TooCostly
from proxy.domain.tools import Tool
from proxy.language.syntax.call_syntax import OPTIONAL_AT_MOST
from proxy.language.syntax.guides import GuideBuilder, GuideOrder, guides_of
from tests.doubles.sandbox import InProcess

STRING = {"type": "string"}
TAG = {"type": "triggered_tags", "triggers": ["<a><b>"], "tags": []}


def tool(properties: int, required: int = 0) -> Tool:
    names = [f"p{i}" for i in range(properties)]
    listed = dict.fromkeys(names, STRING)
    return Tool(
        name="f", parameters={"type": "object", "properties": listed, "required": names[:required]}
    )


def order(*tools: Tool, family: str = "qwen3_coder", **fields) -> GuideOrder:
    given = GuideOrder(
        constraint=None,
        tools=tools,
        must_call=True,
        in_parallel=True,
        family=family,
        reasoning=None,
        special_tokens={},
    )
    return replace(given, **fields)


@pytest.mark.parametrize(("optional", "family"), [(0, "qwen3_coder"), (1, "json_list")])
def test_many_optional_arguments_are_written_as_json(optional, family):
    """In the family's own syntax the guide would grow with the square of their number."""
    found = guides_of(order(tool(OPTIONAL_AT_MOST + optional)))
    assert found.family == family
    assert len(found.answer.text) < 10_000 * OPTIONAL_AT_MOST


def test_a_guide_that_would_be_too_large_is_refused():
    definitions = {"a": {"type": "object", "description": "long " * 2_000}}
    properties = {f"p{i}": {"$ref": "#/$defs/a"} for i in range(1_000)}
    parameters = {
        "type": "object",
        "$defs": definitions,
        "properties": properties,
        "required": list(properties),
    }
    with pytest.raises(InvalidRequest, match="2000000 characters") as caught:
        guides_of(order(Tool(name="f", parameters=parameters)))
    assert caught.value.param == "tools"


def test_many_special_tokens_cost_little():
    specials = {at: f"<|special_{at}|>".encode() for at in range(2_000)}

    def spent(tokens: dict[int, bytes]) -> float:
        start = time.thread_time()
        guides_of(order(tool(1_000, required=1_000), special_tokens=tokens))
        return time.thread_time() - start

    spent(specials)  # compiles the pattern
    assert spent(specials) < 5 * spent({0: b"<|special_0|>"}) + 0.05


def test_a_trigger_with_text_next_to_a_special_token_is_refused_by_its_field():
    text = json.dumps({"type": "structural_tag", "format": TAG})
    given = order(
        constraint=Constraint(GuideKind.STRUCTURAL_TAG, text, "structural_tag"),
        must_call=False,
        reasoning="qwen3",
        special_tokens={1: b"<a>"},
    )
    with pytest.raises(InvalidRequest, match="special token") as caught:
        guides_of(given)
    assert caught.value.param == "structural_tag"


def test_equal_orders_are_built_once():
    sandbox = InProcess()
    builder = GuideBuilder(sandbox)
    orders = [
        order(tool(3)),
        order(tool(3)),
        order(tool(3), family="hermes"),
        order(tool(4)),
        order(tool(3), special_tokens={1: b"<tool_call>"}),
        order(tool(3), in_parallel=False),
        order(tool(3)),
    ]
    built = [asyncio.run(builder.guides(one, "someone")) for one in orders]
    assert sandbox.callers == ["someone"] * 5
    assert built == [guides_of(one) for one in orders]


class Refusing:
    """A sandbox in which everything takes too long."""

    async def run(self, caller, function, *args, **kwargs):
        raise TooCostly("it takes more than 2 s or 512 MB to check")


def test_guides_that_take_too_long_are_the_callers_mistake():
    with pytest.raises(InvalidRequest, match="more than 2 s") as caught:
        asyncio.run(GuideBuilder(Refusing()).guides(order(tool(1)), ""))
    assert caught.value.param == "tools"
