"""Chat templates: the model's own, in a sandbox, with what Hugging Face's templates expect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.errors import InvalidRequest
from proxy.domain.request import ChatPrompt, Message
from proxy.domain.tools import Tool, ToolCall
from proxy.language.prompting import chat_template
from tests.doubles.engine import FACTS

PROMPT = ChatPrompt(
    messages=(
        Message(role="developer", content="Be brief."),
        Message(role="user", content="<b>Hi</b>", name="Ann"),
    )
)


def render(prompt, facts, tools=(), **fields) -> str:
    return chat_template.rendered(prompt, facts, tools, **fields).text


def rendered(template: str) -> str:
    return render(PROMPT, replace(FACTS, chat_template=template))


def test_messages_are_rendered_up_to_the_answer():
    template = (
        "{{ bos_token }}{% for m in messages %}"
        "[{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}]{{ m.content }}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}[answer]{% endif %}"
    )
    assert rendered(template) == "<s>[system]Be brief.</s>[user Ann]<b>Hi</b></s>[answer]"


def test_a_template_that_knows_developers_gets_the_role():
    template = (
        "{% for m in messages %}{% if m.role == 'developer' %}D{% endif %}{{ m.content }}"
        "{% endfor %}"
    )
    assert rendered(template) == "DBe brief.<b>Hi</b>"


def test_tojson_does_not_escape_html():
    assert rendered("{{ messages[1].content | tojson }}") == '"<b>Hi</b>"'


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("", '{"b": "ü", "a": [1, 2]}'),
        ("(separators=(',', ':'))", '{"b":"ü","a":[1,2]}'),
        ("(sort_keys=true)", '{"a": [1, 2], "b": "ü"}'),
        ("(ensure_ascii=true)", '{"b": "\\u00fc", "a": [1, 2]}'),
        ("(indent=1)", '{\n "b": "ü",\n "a": [\n  1,\n  2\n ]\n}'),
    ],
)
def test_tojson_takes_what_transformers_takes(how, text):
    assert rendered(f"{{{{ {{'b': 'ü', 'a': [1, 2]}} | tojson{how} }}}}") == text


def test_text_marked_as_generated_is_rendered_unchanged():
    template = (
        "{% set own = 1 %}{% for m in messages %}{% generation %}"
        "{% set own = 2 %}{{ m.role }}{{ own }}{{ loop.index }}\n"
        "{%- endgeneration %}{{ own }} {% endfor %}"
    )
    assert rendered(template) == "system211 user221 "


def test_a_variable_within_generated_text_is_used():
    prompt = prompt_of(callers_values={"mood": "!"})
    template = GENERAL + "{% generation %}{{ mood }}{% endgeneration %}"
    assert render(prompt, facts_of(template), takes_callers_values=True) == "<user>hi</>!"


@pytest.mark.parametrize(
    "template",
    [
        "{% generation %}",
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[9].content.nothing }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 1 / 0 }}",
        "{{ 1" + " % 1" * 2_000 + " }}",  # RecursionError, in jinja2's parser
    ],
)
def test_a_refusal_by_the_template_is_the_callers_mistake(template):
    with pytest.raises(InvalidRequest) as caught:
        rendered(template)
    assert (caught.value.code, caught.value.param) == ("invalid_messages", "messages")


GENERAL = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"
KNOWING = GENERAL + "{{ reasoning_effort }}{{ mood }}{% set own = 1 %}{{ own }}"
CALLING_HELPERS = "{% if raise %}{{ range(2) | list }}{{ strftime_now('%Y') }}{% endif %}"


def facts_of(template: str):
    return replace(FACTS, chat_template=template)


def prompt_of(*messages: Message, **fields) -> ChatPrompt:
    return ChatPrompt(messages=messages or (Message(role="user", content="hi"),), **fields)


def test_a_continued_message_ends_the_prompt_with_all_its_spaces():
    last = Message(role="assistant", content="I am ")
    prompt = prompt_of(last, adds_generation_prompt=False, continues_last=True)
    assert render(prompt, facts_of(GENERAL)) == "<assistant>I am "


def test_a_template_that_drops_the_last_message_cannot_continue_it():
    prompt = prompt_of(continues_last=True)
    with pytest.raises(InvalidRequest, match="cannot be continued"):
        render(prompt, facts_of("fixed"))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"template_values": {"verbosity": "low"}}, "verbosity"),
        ({"callers_values": {"own": 1}}, "chat_template_kwargs.own"),
        ({"callers_values": {"bos_token": ""}}, "chat_template_kwargs.bos_token"),
        ({"callers_values": {"strftime_now": ""}}, "chat_template_kwargs.strftime_now"),
    ],
)
def test_unused_values_are_refused_by_name(fields, param):
    with pytest.raises(InvalidRequest) as caught:
        render(prompt_of(**fields), facts_of(KNOWING + CALLING_HELPERS), takes_callers_values=True)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", param)


CALLING = Message(
    role="assistant", content=None, tool_calls=(ToolCall(id="c", name="f", arguments="{}"),)
)
RESULT = Message(role="tool", content="1", tool_call_id="c")
TWO = replace(
    FACTS,
    chat_template="plain",
    tool_template=(
        "{{ tools | length if tools }} tools {% for m in messages %}{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    ),
)


def test_a_template_for_tools_is_used_for_requests_with_tools():
    assert render(prompt_of(), TWO) == "plain"
    assert render(prompt_of(), TWO, [Tool(name="f")]) == "1 tools hi"
    own = prompt_of(template="own {{ tools | length }}")
    assert render(own, TWO, [Tool(name="f")], takes_templates=True) == "own 1"


@pytest.mark.parametrize("message", [CALLING, RESULT])
def test_a_template_for_tools_is_used_for_calls_that_the_other_cannot_render(message):
    assert render(prompt_of(message), TWO).startswith(" tools")
    knowing = replace(TWO, chat_template=f"usual {TWO.tool_template}")
    assert render(prompt_of(message), knowing).startswith("usual")


SILENT = {"template_values": {"reasoning_effort": "none"}}
SHOWN = "{{ reasoning_effort }} {{ enable_thinking }} {{ thinking }}"


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{% if enable_thinking is defined and enable_thinking is false %}<>{% endif %}", "<>"),
        (
            "{% if not thinking is defined %}{% set thinking = true %}{% endif %}"
            "{% if not thinking %}<>{% endif %}",
            "<>",
        ),
        ("{{ reasoning_effort }}", "none"),
        (SHOWN, "none False False"),
    ],
)
def test_each_template_gets_its_own_variable_to_switch_reasoning_off(template, shown):
    assert render(prompt_of(**SILENT), facts_of(template), reasoning="qwen3") == shown


def test_switches_set_by_the_caller_stay():
    prompt = prompt_of(**SILENT, callers_values={"enable_thinking": True})
    text = render(prompt, facts_of(SHOWN), takes_callers_values=True, reasoning="qwen3")
    assert text == "none True False"


@pytest.mark.parametrize(
    "template",
    [
        "{{ namespace(_a=1) }}",
        "{% set n = namespace() %}{% set n._a = 1 %}",
        "{{ namespace(self=1, __class__=2) }}",
        "{{ dict.mro() }}",
    ],
)
def test_namespaces_and_dict_show_nothing_of_python_as_in_transformers_5_24(template):
    with pytest.raises(InvalidRequest):
        rendered(template)


def test_namespaces_and_dict_do_what_templates_use_them_for():
    template = (
        "{% set n = namespace(dict(a=1), b=2) %}{% set n.c = 3 %}{{ n.a }}{{ n.b }}{{ n.c }}"
        "{{ dict.fromkeys(['x'], 1) }}{{ namespace(self=4).self }}"
    )
    assert rendered(template) == "123{'x': 1}4"


def test_tojson_writes_what_filters_make_of_a_list():
    assert rendered("{{ messages | map(attribute='role') | tojson }}") == '["system", "user"]'


LEAVES_OUT = (
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.id }}{% endfor %}"
    "{% endfor %}{% if messages[-1].role != 'tool' %}{% if thinking %}<think>{% else %}</think>"
    "{% endif %}{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "values", "family", "is_left_out"),
    [
        (LEAVES_OUT, {"thinking": True}, "qwen3", True),  # as DeepSeek V3.1's
        (LEAVES_OUT, {}, "qwen3", False),
        (LEAVES_OUT, {"thinking": True}, "mistral", False),
        (LEAVES_OUT, {"thinking": True}, None, False),
        (LEAVES_OUT + "<think>\n", {"thinking": True}, "qwen3", False),
        (LEAVES_OUT + "{{ messages[1].tool_calls[0].id }}", {"thinking": True}, "qwen3", False),
    ],
)
def test_a_template_may_open_a_thought_only_after_what_a_user_says(
    template, values, family, is_left_out
):
    call = ToolCall(id="c1", name="f", arguments="{}")
    turns = (
        Message(role="user", content="a"),
        Message(role="assistant", content=None, tool_calls=(call,)),
        Message(role="tool", content="4", tool_call_id="c1"),
    )
    for messages, expected in ((turns, is_left_out), ((*turns, turns[0]), False)):
        prompt = ChatPrompt(messages=messages, template_values=values)
        facts = replace(FACTS, chat_template=template)
        found = chat_template.rendered(prompt, facts, reasoning=family)
        assert found.leaves_thought_out is expected
