"""Whatever a chat template wants of messages is found by rendering it: templates made of the quirks
of real ones, in any combination, show every word of every chat.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.domain.errors import InvalidRequest
from proxy.domain.request import ChatPrompt, Message
from proxy.domain.tools import Tool
from proxy.language.prompting.chat_template import forms_of, rendered
from proxy.language.prompting.template_forms import Forms
from tests.doubles.engine import FACTS
from tests.fixtures.examples import examples
from tests.unit.language.prompting.template_chats import (
    OF_CALLS,
    OF_TURNS,
    SPOILT,
    USER,
    missing,
    said,
)

REFUSES = "{{ raise_exception('no') }}"
# What templates do with each kind of message, the plain way first.
SYSTEMS = {
    "as it is": "[{{ m.role }}]{{ m.content }}",
    "first only": f"{{% if not loop.first %}}{REFUSES}{{% endif %}}[system]{{{{ m.content }}}}",
    "later ones dropped": "{% if loop.first %}[system]{{ m.content }}{% endif %}",
    "refused": REFUSES,
    "dropped": "",
}
TURNS = {
    "as they are": "",
    "alternating": (
        "{% set ns = namespace(turn='user') %}{% for m in messages %}"
        "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
        f"{{% if m.role != ns.turn %}}{REFUSES}{{% endif %}}"
        "{% set ns.turn = 'assistant' if m.role == 'user' else 'user' %}{% endif %}{% endfor %}"
    ),
}
CONTENTS = {
    "or nothing": "{{ m.content or '' }}",
    "searched": "{% if 'x' in m.content %}{% endif %}{{ m.content }}",
    "searched if there": (
        "{% if 'content' in m %}{% if 'x' in m.content %}{% endif %}{{ m.content }}{% endif %}"
    ),
    "written": "{{ m.content }}",
    "concatenated": "{{ '' + m.content }}",
    "split": "{{ m.content.split('</think>')[-1] }}",
    "dropped": "",
}
ARGUMENTS = {
    "JSON": "{{ c.function.arguments | tojson }}",
    "a text": "{{ '' + c.function.arguments }}",
    "items": "{% for k, v in c.function.arguments | items %}<{{ k }}>{{ v }}{% endfor %}",
    "JSON or a text": (
        "{{ c.function.arguments if c.function.arguments is string else "
        "c.function.arguments | tojson }}"
    ),
}
NAMES = {
    "the name": "{{ c.function.name }}",
    "the id": "{{ c.id }}",
    "name and nine": (
        f"{{% if c.id | length != 9 %}}{REFUSES}{{% endif %}}"
        "{{ c.id }}{{ c.function.name }}"
    ),
}
CALLS = {
    "all": "m.tool_calls",
    "the first": "m.tool_calls[:1]",
    "one at most": "(m.tool_calls if m.tool_calls | length == 1 else raise_exception('one'))",
}
THOUGHTS = {
    "dropped": "",
    "shown": "{{ m.reasoning_content or '' }}",
    "not next to text": (
        f"{{% if m.thinking and m.content %}}{REFUSES}{{% endif %}}{{{{ m.thinking or '' }}}}"
    ),
}
TOOLS = {
    "JSON": "{{ t | tojson }}",
    "concatenated": "{{ t.function.name + t.function.description }}",
    "of properties": (
        "{{ t.function.name ~ (t.function.description or '') }}"
        "{% for n, p in t.function.parameters.properties | items %}{{ n + p.type }}{% endfor %}"
    ),
}


def template_of(
    system: str,
    turns: str,
    content: str,
    arguments: str,
    name: str,
    calls: str,
    thought: str,
    tool: str,
) -> str:
    return (
        f"{turns}{{% for t in tools or [] %}}{tool}{{% endfor %}}{{% for m in messages %}}"
        f"{{% if m.role == 'system' %}}{system}"
        f"{{% elif m.tool_calls %}}[calls]{thought}{content}"
        f"{{% for c in {calls} %}}{name}{arguments}{{% endfor %}}"
        "{% elif m.role == 'tool' %}[result]{{ m.tool_call_id[:0] + m.content }}"
        "{% else %}[{{ m.role }}]{{ m.content + '' }}{% endif %}{% endfor %}"
    )


KINDS = (SYSTEMS, TURNS, CONTENTS, ARGUMENTS, NAMES, CALLS, THOUGHTS, TOOLS)
templates = st.tuples(*(st.sampled_from(sorted(kind.values())) for kind in KINDS))


@settings(max_examples=examples(60))
@given(templates)
def test_a_template_of_any_quirks_shows_every_word(quirks):
    facts = replace(FACTS, chat_template=template_of(*quirks))
    for name, chat in {**OF_TURNS, **OF_CALLS}.items():
        messages, tools = chat
        text = rendered(ChatPrompt(messages=messages), facts, tools).text
        assert missing(text, chat) == [], name
        assert "None" not in text, name
        assert SPOILT.search(text) is None, name


PLAIN = template_of(*(next(iter(kind.values())) for kind in KINDS))


def test_a_template_without_quirks_gets_the_usual_forms():
    assert forms_of(PLAIN) == Forms()


def prompt_of(template: str, *messages: Message, tools: tuple[Tool, ...] = ()) -> str:
    facts = replace(FACTS, chat_template=template)
    return rendered(ChatPrompt(messages=messages), facts, tools).text


def test_a_template_that_wants_null_gets_it():
    template = PLAIN.replace("{% elif m.tool_calls", "{% elif m.content is none and m.tool_calls")
    messages, _ = OF_CALLS["a call"]
    assert missing(prompt_of(template, *messages), (messages, ())) == []


def test_a_later_system_message_stays_at_its_place():
    template = PLAIN.replace(SYSTEMS["as it is"], SYSTEMS["first only"])
    chat = (said("system", "a"), USER, said("system", "b"), said("assistant", "c"))
    assert prompt_of(template, *chat) == "[system]a[user]uSer1[user]b[assistant]c"


def test_calls_that_are_shown_one_at_a_time_stand_before_their_results():
    template = PLAIN.replace("in m.tool_calls %}", "in m.tool_calls[:1] %}")
    messages, _ = OF_CALLS["parallel calls"]
    text = prompt_of(template, *messages)
    places = [text.index(word) for word in ("pAth1", "rEs1", "pAth2", "rEs2")]
    assert places == sorted(places)


def test_the_result_has_the_name_of_its_call():
    template = PLAIN.replace("[result]", "[{{ m.name }}]")
    messages, _ = OF_CALLS["a call"]
    assert "[lookUp]rEs1" in prompt_of(template, *messages)


def test_a_template_that_wants_a_callers_variable_is_asked_nothing():
    assert forms_of(PLAIN + "{{ their.own }}") == Forms()


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_refusal_names_the_message(at):
    template = f"{PLAIN}{{% for m in messages if m.content == 'b' %}}{REFUSES}{{% endfor %}}"
    messages = [said(role, "a") for role in ("user", "assistant", "user", "assistant")]
    messages[at] = replace(messages[at], content="b")
    role = messages[at].role
    with pytest.raises(InvalidRequest, match=rf"refused messages\[{at}\] \(role '{role}'\): no"):
        prompt_of(template, *messages)
