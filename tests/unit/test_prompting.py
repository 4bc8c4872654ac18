"""Chat templates: the model's own, in a sandbox, with what Hugging Face's templates expect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.errors import InvalidRequest
from proxy.domain.request import ChatPrompt, Message
from proxy.prompting import render
from tests.doubles.engine import FACTS

PROMPT = ChatPrompt(
    messages=(
        Message(role="developer", content="Be brief."),
        Message(role="user", content="<b>Hi</b>", name="Ann"),
    )
)


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
    template = "{% for m in messages %}{% if m.role == 'developer' %}D{% endif %}{% endfor %}"
    assert rendered(template) == "D"


def test_tojson_does_not_escape_html():
    assert rendered("{{ messages[1].content | tojson }}") == '"<b>Hi</b>"'


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[9].content.nothing }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 1 / 0 }}",
    ],
)
def test_what_the_template_refuses_is_the_callers_mistake(template):
    with pytest.raises(InvalidRequest) as caught:
        rendered(template)
    assert (caught.value.code, caught.value.param) == ("invalid_messages", "messages")


def test_a_model_without_template_says_so():
    with pytest.raises(InvalidRequest, match="no chat template") as caught:
        render(PROMPT, replace(FACTS, chat_template=None))
    assert caught.value.code == "unsupported_parameter"
