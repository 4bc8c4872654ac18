"""`chat_template_kwargs`: values for the variables that the model's own chat template reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from proxy.access.process_sandbox import ProcessSandbox
from tests.api.formats import error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.doubles.sandbox import InProcess

CHAT = "/v1/chat/completions"
TEMPLATE = "{{ messages[0].content }}|{{ mood }}|{{ size }}"


@pytest.fixture
def ask(serve, tmp_path):
    """ask(values, policy…) -> the response, the engine, and how often the sandbox was used."""

    def asked(values, *, own=TEMPLATE, template=None, sandbox=None, **policy):
        if policy:
            entry = {"weights": "w", **policy}
            (tmp_path / "none.yaml").write_text(yaml.safe_dump({"models": {"demo": entry}}))
        engine = ScriptedEngine(deltas("a"))
        catalog = FixedCatalog(facts=replace(FACTS, chat_template=own))
        client = serve(engine, catalog, sandbox or InProcess())
        body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
        body |= {"chat_template_kwargs": values}
        body |= {} if template is None else {"chat_template": template}
        response = client.post(CHAT, json=body)
        functions = getattr(client.sandbox, "functions", [])
        return response, engine, functions.count("rendered")

    return asked


@pytest.mark.parametrize("policy", [{}, {"owned_by": "me"}, {"chat_template_kwargs": True}])
def test_a_variable_of_the_models_own_template_takes_a_value(ask, policy):
    response, engine, _ = ask({"mood": "glad", "size": None}, **policy)
    assert response.status_code == 200, response.text
    assert engine.requests[0].text == "hi|glad|None"


@pytest.mark.parametrize("name", ["colour", "messages", "tools", "eos_token", "range"])
def test_a_name_that_the_template_does_not_read_is_refused_by_it(ask, name):
    response, engine, _ = ask({"mood": "glad", name: "x"})
    error = error_of(response)
    expected = ("unsupported_parameter", f"chat_template_kwargs.{name}")
    assert (response.status_code, error["code"], error["param"]) == (400, *expected)
    assert not engine.requests


def test_models_yaml_can_forbid_them(ask):
    response, engine, _ = ask({"mood": "glad"}, chat_template_kwargs=False)
    error = error_of(response)
    assert (error["code"], error["param"]) == ("unsupported_parameter", "chat_template_kwargs")
    assert not engine.requests


def test_a_template_of_the_callers_own_says_which_it_reads(ask):
    response, engine, _ = ask({"colour": "red"}, template="{{ colour }}", chat_template=True)
    assert response.status_code == 200, response.text
    assert engine.requests[0].text == "red"


@pytest.mark.parametrize("value", [True, False, None, "", "glad", "2026-07-26", "x" * 256])
def test_a_short_text_or_a_switch_is_rendered_at_once(ask, value):
    response, _, in_sandbox = ask({"mood": value})
    assert (response.status_code, in_sandbox) == (200, 0)


@pytest.mark.parametrize(
    "value",
    [7, 1e300, -1, "1000000", " 1e9 ", "1_000", "\u0667", "%999d", "{:>999}", "x" * 257, [1], {}],
)
def test_what_a_template_can_be_made_to_work_on_is_rendered_in_the_sandbox(ask, value):
    response, _, in_sandbox = ask({"mood": value})
    assert (response.status_code, in_sandbox) == (200, 1)


def test_many_short_texts_are_rendered_in_the_sandbox(ask):
    response, _, in_sandbox = ask({f"k{number}": "x" for number in range(100)})
    assert (response.status_code, in_sandbox) == (400, 1)


@pytest.mark.parametrize(
    ("own", "values"),
    [
        ("{{ 'a' * size }}", {"size": 10**9}),
        ("{{ 10 ** size }}", {"size": 10**9}),
        ("{% for i in range(size) %}{% for k in range(size) %}{{ k }}{% endfor %}{% endfor %}",
         {"size": 99_999}),
        ("{% for i in range(size | int) %}{% for k in range(99999) %}{% endfor %}{% endfor %}",
         {"size": "99999"}),
    ],
)  # fmt: skip
def test_a_model_whose_template_counts_with_a_value_refuses_one_that_costs_too_much(
    ask, own, values
):
    response, engine, _ = ask(values, own=own, sandbox=ProcessSandbox(cpu_s=0.5))
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "invalid_messages")
    assert "takes more than" in error["message"]
    assert not engine.requests
