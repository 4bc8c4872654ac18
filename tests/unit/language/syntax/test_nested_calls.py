"""Elements that carry types or hold elements: Kimi K3, MiniMax M3, Cohere's XML."""

from __future__ import annotations

import json

import pytest

from proxy.domain.tools import Tool
from proxy.language.syntax.guides import GuideOrder, guides_of
from tests.unit.language.syntax.folding import answered, parser_of

ITEM = {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = {
    "f": {
        "properties": {
            "s": {"type": "string"},
            "n": {"type": "integer"},
            "l": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            "o": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Item"}]},
            "any": {},
            "more": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "$defs": {"Item": ITEM},
    }
}
SPACE = "]<]minimax[>["


def arguments(family: str, text: str) -> tuple[list[str], str]:
    """Checks that the whole text and single characters give the same result, and returns it."""
    answer = answered(parser_of(family, TOOLS), [text])
    assert answered(parser_of(family, TOOLS), list(text)) == answer
    assert answer.is_cut or all(isinstance(json.loads(one), dict) for one in answer.arguments)
    return answer.arguments, answer.text


def minimax(inner: str) -> str:
    tagged = inner.replace("<", f"{SPACE}<")
    return (
        f'{SPACE}<tool_call>\n{SPACE}<invoke name="f">{tagged}{SPACE}</invoke>\n{SPACE}</tool_call>'
    )


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("", "{}"),
        ("<s>42</s>\n<n>42</n>", '{"s": "42", "n": 42}'),
        (
            "<l>\n<item><sku>7</sku><n>1</n></item>\n<item><n>2</n></item></l>",
            '{"l": [{"sku": "7", "n": 1}, {"n": 2}]}',
        ),
        ("<o><sku>7</sku></o><n>1</n>", '{"o": {"sku": "7"}, "n": 1}'),
        ("<o>null</o>", '{"o": null}'),
        ('<l>[{"sku": "7"}]</l>', '{"l": [{"sku": "7"}]}'),
        ("<l></l><more></more><s></s>", '{"l": [], "more": {}, "s": ""}'),
        ("<more><a>1</a></more>", '{"more": {"a": 1}}'),
        # Without a schema text is a string or null, and elements called item are a list.
        ("<x>42</x><y>null</y>", '{"x": "42", "y": null}'),
        ("<x><item>1</item><item><a>b</a></item></x>", '{"x": ["1", {"a": "b"}]}'),
        ("<any>42</any>", '{"any": 42}'),
        # Broken inside: closed.
        ("<l><item><n>1</n></l>", '{"l": [{"n": 1}]}'),
        ("<l><item><n>1</n>so</item></l>", '{"l": [{"n": 1}]}'),
    ],
)
def test_minimax_m3(inner, expected):
    assert arguments("minimax_m3", minimax(inner))[0] == [expected]


def cohere(inner: str) -> str:
    call = f'<cofl:tool_call id="0" name="f">{inner}</cofl:tool_call>'
    return f"<cofl:tool_calls>{call}</cofl:tool_calls>"


def value(name: str, kind: str, inner: str) -> str:
    named = f'name="{name}" ' if name else ""
    return f'<cofl:value {named}type="{kind}">{inner}</cofl:value>'


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (value("s", "raw", 'a > "b" && c'), '{"s": "a > \\"b\\" && c"}'),
        (value("&quot;&amp;lt;", "json", "1"), '{"\\"&lt;": 1}'),
        (value("x", "raw", "42") + value("y", "json", "42"), '{"x": "42", "y": 42}'),
        (value("n", "raw", "42"), '{"n": 42}'),
        (value("s", "json", '"42"'), '{"s": "42"}'),
        (
            value("l", "list", value("", "dict", value("n", "json", "1")) + value("", "list", "")),
            '{"l": [{"n": 1}, []]}',
        ),
        # Broken inside: closed.
        (value("l", "list", value("", "dict", value("", "json", "1"))), '{"l": [{}]}'),
        ('<cofl:value name="l" type="list">so', '{"l": []}'),
    ],
)
def test_cohere_xml(inner, expected):
    assert arguments("cohere_xml", cohere(inner))[0] == [expected]


def kimi(inner: str, head: str = 'tool="f" index="1"') -> str:
    call = f"<|open|>call {head}<|sep|>{inner}<|close|>call<|sep|>"
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def argument(key: str, kind: str, inner: str) -> str:
    return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{inner}<|close|>argument<|sep|>'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (kimi(argument("s", "string", "a\n<b>")), ['{"s": "a\\n<b>"}']),
        (
            kimi(argument("x", "string", "42") + argument("y", "number", "42")),
            ['{"x": "42", "y": 42}'],
        ),
        (kimi(argument("n", "string", "42")), ['{"n": 42}']),
        (kimi(argument("l", "array", '[{"sku": "7"}]')), ['{"l": [{"sku": "7"}]}']),
        (kimi(argument("x", "null", "null")), ['{"x": null}']),
        (kimi(argument("x", "number", "many")), ['{"x": "many"}']),
        (kimi("", 'index="1" tool="f"'), ["{}"]),
        (kimi("", 'index="1"'), []),
        (kimi(argument("s", "string", "x") + "so"), ['{"s": "x"}']),
    ],
)
def test_kimi_k3(text, expected):
    assert arguments("kimi_k3", text)[0] == expected


def test_deep_elements_are_read():
    opening = value("", "list", "").removesuffix("</cofl:value>") * 20_000
    text = cohere('<cofl:value name="l" type="list">' + opening + "!")
    answer = answered(parser_of("cohere_xml", TOOLS), [text])
    assert answer.arguments == ['{"l": ' + "[" * 20_001 + "]" * 20_001 + "}"]


@pytest.mark.parametrize("family", ["minimax_m3", "cohere_xml", "kimi_k3"])
def test_a_schema_that_refers_to_itself_has_a_guide(family):
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}
    parameters = {**tree, "$defs": {"Tree": tree}, "required": ["next"]}
    order = GuideOrder(
        constraint=None,
        tools=(Tool(name="f", parameters=parameters),),
        must_call=True,
        in_parallel=True,
        family=family,
        reasoning=None,
        special_tokens={},
    )
    found = guides_of(order)
    assert (found.family, found.size < 10_000) == (family, True)
