"""Slips that models make in their own syntax: what they mean is read where it is one of the
caller's tools, and is text elsewhere.
"""

from __future__ import annotations

import json

import pytest

from tests.unit.language.syntax.folding import answered, parser_of

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
TOOLS = {
    name: {"type": "object", "properties": properties}
    for name, properties in {
        "ls": {"path": TEXT},
        "search": {"query": TEXT, "limit": WHOLE},
        "save_file": {"filename": TEXT, "content": TEXT},
    }.items()
}
SPACE = "]<]minimax[>["
OBJECT = '{"name": "ls", "arguments": {"path": "a"}}'
ELEMENT = "<function=ls>\n<parameter=path>\na\n</parameter>\n</function>"
LS = [{"name": "ls", "arguments": {"path": "a"}}]


def said(family: str, text: str):
    """Checks that every cut gives the same result, and returns it."""
    answer = answered(parser_of(family, TOOLS), [text])
    for at in range(1, len(text)):
        assert answered(parser_of(family, TOOLS), [text[:at], text[at:]]) == answer, at
    assert answered(parser_of(family, TOOLS), list(text)) == answer
    return answer


TOOL_CALL = "<tool_call>\n%s\n</tool_call>"
MINIMAX = "<minimax:tool_call>\n%s\n</minimax:tool_call>"
DSML = "<｜DSML｜function_calls>\n%s\n</｜DSML｜function_calls>"


@pytest.mark.parametrize(
    ("family", "section", "inner"),
    [
        # The other syntax between the right marks.
        *(
            (family, TOOL_CALL, inner)
            for family in ("hermes", "exaone", "glm45", "qwen3_coder", "qwen3_xml")
            for inner in (OBJECT, f"[{OBJECT}]", ELEMENT, f"{OBJECT}}}")
        ),
        *(("minimax_m2", MINIMAX, inner) for inner in (OBJECT, f"[{OBJECT}]", ELEMENT)),
        ("deepseek_v32", DSML, OBJECT),
        ("generic", "<function_call>%s</function_call>", ELEMENT),
        ("jamba", "<tool_calls>%s</tool_calls>", ELEMENT),
        ("kimi_k2", "<|tool_calls_section_begin|>%s<|tool_calls_section_end|>", OBJECT),
        ("minimax_m3", f"{SPACE}<tool_call>\n%s\n{SPACE}</tool_call>", OBJECT),
        ("llama4_pythonic", "%s", OBJECT),
        ("llama4_pythonic", "<|python_start|>%s<|python_end|>", OBJECT),
        ("llama4_pythonic", "<|python_start|>%s<|python_end|>", f"[{OBJECT}]"),
        ("pythonic", "%s", OBJECT.replace("arguments", "parameters")),
        # JSON in the family's own call.
        ("qwen3_coder", TOOL_CALL, '<function=ls>\n{"path": "a"}\n</function>'),
        ("minimax_m2", MINIMAX, '<invoke name="ls">\n{"path": "a"}\n</invoke>'),
        ("glm45", TOOL_CALL, 'ls\n{"path": "a"}'),
        ("deepseek_v32", DSML, '<｜DSML｜invoke name="ls">\n{"path": "a"}\n</｜DSML｜invoke>'),
        # A half mark behind a name.
        ("qwen3_coder", TOOL_CALL, ELEMENT.replace("path>", "path")),
        ("qwen3_coder", TOOL_CALL, ELEMENT.replace("ls>", "ls")),
        ("qwen3_coder", TOOL_CALL, ELEMENT.replace(">\n", "\n", 2)),
        (
            "minimax_m2",
            MINIMAX,
            '<invoke name="ls>\n<parameter name="path">a</parameter>\n</invoke>',
        ),
        (
            "minimax_m2",
            MINIMAX,
            '<invoke name="ls">\n<parameter name="path"\na</parameter>\n</invoke>',
        ),
        # Without the mark in front of a value.
        ("glm45", TOOL_CALL, "ls<arg_key>path</arg_key>a</arg_value>"),
        ("glm45", TOOL_CALL, "ls\n<arg_key>path</arg_key>\na</arg_value>"),
        # Without the first opening tag.
        *(
            (
                "minimax_m3",
                f"{SPACE}<tool_call>\n%s{SPACE}</tool_call>",
                f'{SPACE}<invoke name="ls">{begin}a{SPACE}</path>{SPACE}</invoke>\n',
            )
            for begin in (SPACE, "", "\n")
        ),
        # Doubled bars.
        (
            "deepseek_v32",
            DSML.replace("｜", "｜｜"),
            '<｜DSML｜invoke name="ls">\n<｜DSML｜parameter name="path" string="true">a'
            "</｜DSML｜parameter>\n</｜DSML｜invoke>".replace("｜", "｜｜"),
        ),
        # Brackets too many.
        *(("hermes", TOOL_CALL, f"{OBJECT}{more}") for more in ("}", "]", "}}", "}]}")),
        *(("granite", "<|tool_call|>%s", f"[{OBJECT}]{more}") for more in ("]", "}]")),
        # Arguments next to the name.
        *(
            (family, section, inner)
            for family, section in (
                ("hermes", TOOL_CALL),
                ("granite", "<|tool_call|>%s"),
                ("internlm", "<|action_start|><|plugin|>%s<|action_end|>"),
            )
            for inner in (
                '{"name": "ls", "path": "a"}',
                '{"path": "a", "name": "ls", "reason": "why"}',
                '{"function": {"name": "ls", "path": "a"}}',
                '{"type": "function", "name": "ls", "path": "a"}',
            )
        ),
        # Other keys.
        *(
            ("hermes", TOOL_CALL, f'{{"{name}": "ls", "{arguments}": {{"path": "a"}}}}')
            for name in ("name", "tool", "tool_name", "function")
            for arguments in ("input", "params", "args", "parameters")
        ),
        ("cohere", "<|START_ACTION|>%s<|END_ACTION|>", OBJECT),
        ("apertus", "<|tools_prefix|>[%s]<|tools_suffix|>", OBJECT),
        # The objects between the marks around one call.
        *(
            (family, f"{begin}%s{end}", inner)
            for family, begin, end in (
                ("gemma4", "<|tool_call>", "<tool_call|>"),
                ("functiongemma", "<start_function_call>", "<end_function_call>"),
                ("kimi_k2", "<|tool_call_begin|>", "<|tool_call_end|>"),
                (
                    "kimi_k2",
                    "<|tool_calls_section_begin|><|tool_call_begin|>",
                    "<|tool_call_end|><|tool_calls_section_end|>",
                ),
                *(
                    (family, f"{section}<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
                    for family in ("deepseek_v3", "deepseek_v31")
                    for section in ("", "<｜tool▁calls▁begin｜>")
                ),
                ("hy3", "<tool_call:opensource>", "</tool_call:opensource>"),
                ("solar_open", "<|tool_calls|><|tool_call:begin|>", "<|tool_call:end|><|calls|>"),
            )
            for inner in (OBJECT, f"[{OBJECT}]")
        ),
        # The form of a neighbour.
        *(
            (family, "<｜tool▁call▁begin｜>%s<｜tool▁call▁end｜>", inner)
            for family in ("deepseek_v3", "deepseek_v31")
            for inner in (
                'ls<｜tool▁sep｜>{"path": "a"}',
                'function<｜tool▁sep｜>ls\n```json\n{"path": "a"}\n```',
                'ls<｜tool▁sep｜>```json\n{"path": "a"}\n```',
                'function<｜tool▁sep｜>ls\n{"path": "a"}',
            )
        ),
        ("lfm2", "<|tool_call_start|>%s<|tool_call_end|>", 'ls(path="a")'),
        # A fence around the object.
        *(("hermes", TOOL_CALL, f"```{word}\n{OBJECT}\n```") for word in ("json", "")),
        ("jamba", "<tool_calls>%s</tool_calls>", f"```json\n[{OBJECT}]\n```"),
        # A name in quotes.
        ("qwen3_coder", TOOL_CALL, ELEMENT.replace("=ls", '="ls"').replace("=path", '="path"')),
        ("mimo", "<tool_call>%s</tool_call>", ELEMENT.replace("\n", "").replace("=ls", '="ls"')),
        # A closing mark that is too short.
        ("qwen3_coder", TOOL_CALL, ELEMENT.replace("</parameter>", "</param>")),
        (
            "minimax_m2",
            MINIMAX,
            '<invoke name="ls">\n<parameter name="path">a</param>\n</invoke>',
        ),
        ("llama3_json", "%s", '{"name": "ls", "parameters": {"path": "a"}}}'),
        ("mistral", "[TOOL_CALLS]%s", 'ls[ARGS]{"path": "a"}}'),
        # Kimi's ids.
        *(
            (
                "kimi_k2",
                "<|tool_call_begin|>%s<|tool_call_end|>",
                f'{own_id}<|tool_call_argument_begin|>{{"path": "a"}}',
            )
            for own_id in ("functionsls5", "functions_ls_5", "functions.ls_5", "ls-0", "ls5")
        ),
        # Gemma's brackets and quotes.
        *(
            ("gemma4", "<|tool_call>%s<tool_call|>", inner)
            for inner in (
                'call:ls{path:a<|"|>}',
                'call:ls(path:<|"|>a<|"|>)',
                'call:ls(path=<|"|>a<|"|>)',
                'call:ls({path:<|"|>a<|"|>})',
                'call:ls(path="a")',
                'call: ls {path:<|"|>a<|"|>}',
            )
        ),
    ],
)
def test_what_is_meant_is_read(family, section, inner):
    answer = said(family, section % inner)
    assert answer.calls == LS
    assert answer.text == ""
    assert not answer.is_cut


def test_objects_with_commas_between_them():
    for gap in (",", ", ", ",\n"):
        answer = said("hermes", TOOL_CALL % f"{OBJECT}{gap}{OBJECT}")
        assert (answer.calls, answer.text) == (LS * 2, "")


def test_a_result_that_gpt_oss_makes_up_is_no_call():
    head = "<|start|>functions.ls to=assistant<|channel|>commentary<|message|>"
    answer = said("harmony", f'{head}{{"x": 1}}<|end|>')
    assert answer.calls == []


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("gemma4", "<|tool_call>call:ls<tool_call|>"),
        ("gemma4", "<|tool_call>call:ls()<tool_call|>"),
        ("hermes", '<tool_call>{"name": "ls"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "ls", "depth": 1}</tool_call>'),
        ("hermes", '<tool_call>{"name": "ls", "arguments": {}, "path": "a"}</tool_call>'),
    ],
)
def test_a_call_without_arguments(family, text):
    answer = said(family, text)
    assert (answer.calls, answer.text) == ([{"name": "ls", "arguments": {}}], "")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{query:Paris, France<|"|>,limit:5}', {"query": "Paris, France", "limit": 5}),
        ('{query:a: b, c<|"|>}', {"query": "a: b, c"}),
        ('{limit:5,query:x y<|"|>}', {"limit": 5, "query": "x y"}),
        ("{query:x y,limit:5}", {"query": "x y", "limit": 5}),
        ('{query:[a b<|"|>,<|"|>c<|"|>]}', {"query": ["a b", "c"]}),
    ],
)
def test_a_string_of_gemma_without_its_first_token(written, meant):
    answer = said("gemma4", f"<|tool_call>call:search{written}<tool_call|>")
    assert answer.calls == [{"name": "search", "arguments": meant}]
    assert answer.text == ""


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("glm45", '<tool_call>{"name": "other", "arguments": {}}</tool_call>'),
        ("qwen3_coder", '<tool_call>\n{"name": "other"}\n</tool_call>'),
        ("hermes", "<tool_call>\n<function=other>\n</function>\n</tool_call>"),
        ("llama4_pythonic", '{"name": "other", "parameters": {}}'),
        ("llama4_pythonic", 'A {"name": "ls"} is'),
        ("qwen3_coder", "<tool_call>\n<function=other\n</function>\n</tool_call>"),
        ("glm45", "<tool_call>ls<arg_key>other</arg_key>a</arg_value></tool_call>"),
    ],
)
def test_what_names_no_tool_of_the_caller_is_no_call(family, text):
    assert not [call for call in said(family, text).names if call == "other"]


@pytest.mark.parametrize("own_id", ["functions_ls_x", "functions", "5", "fls"])
def test_an_id_of_kimi_that_names_no_tool_stays_as_it_is(own_id):
    text = f"<|tool_call_begin|>{own_id}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    assert "ls" not in said("kimi_k2", text).names


def test_the_first_argument_of_minimax_without_its_tag():
    text = (
        f'{SPACE}<tool_call>\n{SPACE}<invoke name="save_file">{SPACE}a.docx{SPACE}</filename>'
        f"{SPACE}<content>Hello{SPACE}</content>{SPACE}</invoke>{SPACE}</tool_call>"
    )
    [arguments] = said("minimax_m3", text).arguments
    assert json.loads(arguments) == {"filename": "a.docx", "content": "Hello"}
