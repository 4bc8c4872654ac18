"""The model's own template: models.yaml may name a file in its place, and one that never ends holds
nobody up.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from proxy.access.process_sandbox import ProcessSandbox
from tests.api.formats import error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
OWN = "{% for m in messages %}own {{ m.role }}: {{ m.content }}{% endfor %}"


@pytest.fixture
def with_file(serve, tmp_path):
    (tmp_path / "own.jinja").write_text(OWN)
    entry = {"weights": "w", "chat_template": "own.jinja"}
    (tmp_path / "none.yaml").write_text(yaml.safe_dump({"models": {"demo": entry}}))
    engine = ScriptedEngine(deltas("a"))
    return serve(engine, FixedCatalog()), engine


def test_a_file_replaces_the_models_own_template(with_file):
    client, engine = with_file
    assert client.post(CHAT, json=BODY).is_success
    assert engine.requests[0].text == "own user: hi"


def test_callers_may_not_replace_it_then(with_file):
    client, engine = with_file
    response = client.post(CHAT, json={**BODY, "chat_template": "{{ 1 }}"})
    assert (response.status_code, error_of(response)["param"]) == (400, "chat_template")
    assert not engine.requests


@pytest.mark.parametrize(
    "loop",
    [
        "{% for i in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}",
        "{% if messages | length > 1 %}{% for i in range(99999) %}{% for k in range(99999) %}"
        "{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}",
    ],
)
def test_a_template_that_never_ends_runs_in_the_sandbox_alone(serve, loop):
    catalog = FixedCatalog(facts=replace(FACTS, chat_template=loop))
    engine = ScriptedEngine(deltas("a"), then=[deltas("b")])
    client = serve(engine, catalog, ProcessSandbox(cpu_s=0.5))
    assert client.post(TEXT, json={"model": "demo", "prompt": "x"}).is_success
    response = client.post(CHAT, json={**BODY, "messages": BODY["messages"] * 2})
    assert response.status_code == 400, response.text
    assert "takes more than" in error_of(response)["message"]
    assert len(engine.requests) == 1


def test_what_a_template_wants_is_known_before_the_first_chat(serve):
    client = serve(ScriptedEngine(deltas("a")))
    before = client.sandbox.functions.count("forms_of")
    assert client.post(CHAT, json=BODY).is_success
    assert (before, client.sandbox.functions.count("forms_of")) == (1, 1)
