"""from_template: the marks of a chat template name the family."""

from __future__ import annotations

import pytest

from proxy.language.syntax.tools.families import FAMILIES, from_template
from proxy.language.syntax.tools.json_families import mistral_id
from proxy.language.syntax.tools.kimi_k2 import kimi_id
from proxy.language.syntax.tools.parser import openai_id
from tests.unit.language.syntax.tools.syntaxes import SYNTAXES

# Their templates have no marks of calls, or share another family's syntax.
UNMARKED = {"llama3_json", "xlam", "pythonic", "qwen3_xml", "json_list"}


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - UNMARKED))
def test_a_template_that_renders_a_family_s_calls_names_it(family):
    calls = [{"name": "f", "arguments": {"a": "b"}}]
    assert from_template("{% if tools %}" + SYNTAXES[family](calls) + "{% endif %}") == family


@pytest.mark.parametrize(
    ("template", "family"),
    [
        ("{{ 'Environment: ipython' }} {'name': f, \"parameters\": {}}", "llama3_json"),
        ("use [func_name1(params_name1=params_value1)]", "pythonic"),
        ("<|system|>{{ system }}<|tool|>{{ tools }}<|/tool|>", "phi4_mini_json"),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", None),
    ],
)
def test_other_marks_of_templates(template, family):
    assert from_template(template) == family


def test_ids_have_the_form_that_models_want():
    assert openai_id("f", 0).startswith("call_")
    assert len(openai_id("f", 0)) == len("call_") + 24
    assert len(mistral_id("f", 0)) == 9
    assert mistral_id("f", 0).isalnum()
    assert kimi_id("a.f", 2) == "functions.a.f:2"
