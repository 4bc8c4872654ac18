"""Calls that break the family's syntax, as small models write them: corrected, or left as text."""

from __future__ import annotations

import json

import pytest

from proxy.language.syntax.families import TOOL_FAMILIES as FAMILIES
from proxy.language.syntax.literal import literal_in
from tests.unit.language.syntax.folding import answered, parser_of

TOOLS = {"f": {"properties": {"a": {"type": "string"}}}}


def said(family: str, text: str):
    """Checks that the whole text and single characters give the same result, and returns it."""
    answer = answered(parser_of(family, TOOLS), [text])
    assert answered(parser_of(family, TOOLS), list(text)) == answer
    return answer.names, answer.arguments, answer.text


@pytest.mark.parametrize(
    ("written", "json_text"),
    [
        ('{"a": "x\ny"}', '{"a": "x\\ny"}'),
        (r'{"a": "\d \' \x41"}', r'{"a": "\\d ' "'" r' \u0041"}'),
        ('{"a": [1, 2,], }', '{"a": [1, 2]}'),
        ("{'a': True, 'b': (None, -1.5e3)}", '{"a": true, "b": [null, -1.5e3]}'),
        ('{"a": 01}', None),
        ('{"a" 1}', None),
        ("(see below)", None),
        ("{'a': NaN}", None),
        (".5", None),
        ("[1] 2", None),
    ],
)
def test_a_literal_becomes_json_or_nothing(written, json_text):
    assert literal_in(written) == json_text
    assert json_text is None or json.loads(json_text) is not None


@pytest.mark.parametrize(
    ("family", "text", "expected"),
    [
        # Broken before a name is known: text without the tags.
        ("hermes", "<tool_call>no</tool_call>", ([], [], "no")),
        ("hermes", 'a <tool_call>{"nam', ([], [], 'a {"nam')),
        # Broken inside the arguments: what was promised is closed, the rest is text.
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"a": ["x" y]}}</tool_call>',
            (["f"], ['{"a": ["x"]}'], " y]}}"),
        ),
        # Values that are neither JSON nor Python: strings, or numbers where they can be read so.
        *(
            (
                "hermes",
                f'<tool_call>{{"name": "f", "arguments": {{"a": {value}, "b": [1]}}}}</tool_call>',
                (["f"], [f'{{"a": {expected}, "b": [1]}}'], ""),
            )
            for value, expected in (
                ("NaN", '"NaN"'),
                ("-Infinity", '"-Infinity"'),
                ("fasle ", '"fasle" '),
                ("01", '"01"'),
                ("1e999", '"1e999"'),
                ("1.2.3", '"1.2.3"'),
                ("12:30", '"12:30"'),
                ("New York", '"New York"'),
                ("[x, y  z]", '["x", "y  z"]'),
                ("108.", "108.0"),
                ("-.5e3", "-0.5e3"),
                ("1_000", "1000"),
                ("b'z'", '"z"'),
            )
        ),
        (
            "hermes",
            r'<tool_call>{"name": "f", "arguments": "{\"a\": NaN}"}</tool_call>',
            (["f"], ['{"a": "NaN"}'], ""),
        ),
        (
            "gemma4",
            "<|tool_call>call:f{a:108.,b:abc}<tool_call|>",
            (["f"], ['{"a":108.0,"b":"abc"}'], ""),
        ),
        *(
            ("gemma4", f"<|tool_call>{name}{{a:1}}<tool_call|>", (["f"], ['{"a":1}'], ""))
            for name in (":f", "f", "call:f")
        ),
        (
            "pythonic",
            "[f(a=b'z', b=.5), f(a=1_000)]",
            (["f", "f"], ['{"a": "z", "b": 0.5}', '{"a": 1000}'], ""),
        ),
        (
            "kimi_k2",
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
            '{"a": "x", "b": fasle<|tool_call_end|>',
            (["f"], ['{"a": "x", "b": "fasle"}'], ""),
        ),
        # Ends that belong to no call, and marks inside the remains.
        *(
            ("hermes", f'{text}<tool_call>{{"name": "f"}}</tool_call>\n</tool_call>', expected)
            for text, expected in (
                ("", (["f"], ["{}"], "")),
                ("</tool_call>Hi", (["f"], ["{}"], "Hi")),
                ("<tool_call>a<tool_call>", (["f"], ["{}"], "a")),
            )
        ),
        (
            "kimi_k2",
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
            "<|tool_calls_section_end|> so <|tool_calls_section_end|>",
            (["f"], ["{}"], " so "),
        ),
        # Ordinary XML is text until a call has begun.
        (
            "qwen3_coder",
            "</function></parameter>\n<function=f>\n</function> and </parameter>",
            (["f"], ["{}"], "</function></parameter>\n and "),
        ),
        (
            "minimax_m2",
            '<parameter name="a">1</parameter></invoke><invoke>',
            ([], [], '<parameter name="a">1</parameter></invoke><invoke>'),
        ),
        # The arguments before the name, as a string, or not at all.
        ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "f"}', (["f"], ['{"a": 1}'], "")),
        (
            "hermes",
            r'<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>',
            (["f"], ['{"a": 1}'], ""),
        ),
        ("hermes", '<tool_call>{"name": "f"}</tool_call>', (["f"], ["{}"], "")),
        ("hermes", '<tool_call>{"name": "f", "arguments": " "}</tool_call>', (["f"], ["{}"], "")),
        (
            "harmony",
            "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
            "<|call|>",
            (["f"], ["{}"], ""),
        ),
        (
            "kimi_k2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
            "<|tool_call_argument_begin|> <|tool_call_end|><|tool_calls_section_end|>",
            (["f"], ["{}"], ""),
        ),
        (
            "deepseek_v31",
            "<｜tool▁call▁begin｜>f<｜tool▁sep｜><｜tool▁call▁end｜>",
            (["f"], ["{}"], ""),
        ),
        (
            "deepseek_v3",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n```<｜tool▁call▁end｜>",
            (["f"], ["{}"], ""),
        ),
        # Arguments that are none: harmony's marks are no text, whatever stands between them.
        (
            "harmony",
            "<|channel|>commentary to=functions.f<|message|>foo<|call|>",
            ([], [], "foo"),
        ),
        (
            "deepseek_v31",
            "<｜tool▁call▁begin｜>f<｜tool▁sep｜>foo",
            ([], [], "ffoo"),
        ),
        # Without a delimiter only a known name makes a call.
        (
            "llama3_json",
            '{"name": "g", "parameters": {}}',
            ([], [], '{"name": "g", "parameters": {}}'),
        ),
        ("llama3_json", '<|python_tag|>{"name": "g", "parameters": {}}', (["g"], ["{}"], "")),
        ("pythonic", "[g(a=1)] and [1, 2]", ([], [], "[g(a=1)] and [1, 2]")),
        ("pythonic", "[f('x')]", ([], [], "[f('x')]")),
        # It may begin anywhere, but not inside something else.
        (
            "llama3_json",
            'Here is the result: {"name": "f", "parameters": {}} Would…',
            (["f"], ["{}"], "Here is the result:  Would…"),
        ),
        ("pythonic", "Some text [f(a='x')]", (["f"], ['{"a": "x"}'], "Some text ")),
        (
            "llama4_pythonic",
            "[f(a='x')] and [f(a='y')]",
            (["f", "f"], ['{"a": "x"}', '{"a": "y"}'], " and "),
        ),
        (
            "xlam",
            '<think>Hm</think>[{"name": "f", "arguments": {}}]',
            (["f"], ["{}"], "<think>Hm</think>"),
        ),
        ("xlam", '[TOOL_CALLS][{"name": "f", "arguments": {}}]', (["f"], ["{}"], "")),
        ("xlam", "See [1], [TOOL_CALLS", ([], [], "See [1], [TOOL_CALLS")),
        ("pythonic", "结果[f()]", (["f"], ["{}"], "结果")),
        ("pythonic", 'a = "x",\n[f()]', (["f"], ["{}"], 'a = "x",\n')),
        *(
            ("llama3_json", text, ([], [], text))
            for text in (
                '{"calls": {"name": "f", "parameters": {}}}',
                '{"calls" : [\n  {"name": "f", "parameters": {}},\n  {"name": "f"}]}',
                'Write `{"name": "f", "parameters": {}}`.',
                'call = {"name": "f", "parameters": {}}',
                'A {set} of [words] with \\frac{1}{"name"} and {"name": "g", "parameters": {}}.',
            )
        ),
        *(
            ("pythonic", text, ([], [], text))
            for text in ("x[f(a=1)]", "g([f()], [f()])", "[1, [f()]]", "say '[f()]'")
        ),
        ("mistral", '[TOOL_CALLS]f{"a": "x"}', (["f"], ['{"a": "x"}'], "")),
        ("mistral", "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{}", (["f"], ["{}"], "")),
        # As mistral-common 1.13.1 writes calls for the tokenizers v3, v11 and v13.
        *(
            ("mistral", text, (["f", "g"], ['{"a": "é", "n": 1}', "{}"], ""))
            for text in (
                '[TOOL_CALLS][{"name": "f", "arguments": {"a": "é", "n": 1}, "id": "abcdefghi"}, '
                '{"name": "g", "arguments": {}, "id": "abcdefghj"}]',
                '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": "é", "n": 1}'
                "[TOOL_CALLS]g[CALL_ID]abcdefghj[ARGS]{}",
                '[TOOL_CALLS]f[ARGS]{"a": "é", "n": 1}[TOOL_CALLS]g[ARGS]{}',
            )
        ),
        # As tools are described.
        *(
            (family, f"{begin}{written}", (["f"], ['{"a": "x"}'], ""))
            for family, begin in (
                ("llama3_json", "<|python_tag|>"),
                ("llama3_json", ""),
                ("hermes", "<tool_call>"),
            )
            for written in (
                '{"type": "function", "function": "f", "parameters": {"a": "x"}}',
                '{"type": "function", "function": {"name": "f", "parameters": {"a": "x"}}}',
                '{"function": {"arguments": {"a": "x"}, "name": "f"}, "id": 1}',
                '{"name": "f", "function": "g", "arguments": {"a": "x"}}',
            )
        ),
        (
            "llama3_json",
            'So: {"function": {"b": 1}}',
            ([], [], 'So: {"function": {"b": 1}}'),
        ),
        ("llama3_json", '{"function": "g", "x": 1}', ([], [], '{"function": "g", "x": 1}')),
        # Forgotten ends, and a forgotten begin.
        (
            "qwen3_coder",
            "<function=f>\n<parameter=a>\nx\n</function>\n</tool_call>\nso",
            (["f"], ['{"a": "x"}'], "\nso"),
        ),
        (
            "qwen3_coder",
            "<function=f>\n</function>\n</tool_call>\n<function=f>\n</function>\n</tool_call>",
            (["f", "f"], ["{}", "{}"], ""),
        ),
        ("qwen3_coder", "<function=f>\n</function>\nso", (["f"], ["{}"], "\nso")),
        ("glm45", "<tool_call>f</tool_call>", (["f"], ["{}"], "")),
        # A line break as it stands in JSON, between the elements only.
        (
            "glm45",
            r"<tool_call>f\n<arg_key>a</arg_key> \n\n <arg_value>\nx\n</arg_value>\n</tool_call>",
            (["f"], [r'{"a": "\\nx\\n"}'], ""),
        ),
        ("glm45", r"<tool_call>f\t</tool_call>", ([], [], r"f\t")),
        (
            "harmony",
            " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
            (["f"], ["{}"], ""),
        ),
        (
            "harmony",
            "<|channel|>commentary<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>yo",
            ([], [], "Hiyo"),
        ),
    ],
)
def test_a_call_that_breaks_the_syntax(family, text, expected):
    assert said(family, text) == expected


@pytest.mark.parametrize("end", range(1, len("<|call|>")))
def test_the_begin_of_an_end_mark_behind_a_call_without_arguments_is_not_text(end):
    text = "<|channel|>commentary to=functions.f<|message|>" + "<|call|>"[:end]
    answer = answered(parser_of("harmony", TOOLS), [text])
    assert (answer.names, answer.text, answer.is_cut) == (["f"], "", True)


def test_deep_arguments_are_read():
    deep = "[" * 50_000
    parser = FAMILIES["hermes"]()
    answer = answered(parser, ['<tool_call>{"name": "f", "arguments": {"a": ' + deep + "x!"])
    assert answer.arguments[0].endswith("]" * 50_000 + "}")
    nested = "<tool_call>" + '{"function": ' * 50_000
    assert answered(FAMILIES["hermes"](), [nested]).text == nested.removeprefix("<tool_call>")
