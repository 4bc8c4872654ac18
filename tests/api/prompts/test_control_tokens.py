"""Callers' control tokens as the HTTP side hands them to the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.model import CAPABILITIES
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

CHAT = "/v1/chat/completions"
END = "<|end|>"
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<think>{% endif %}"
)
WITH_END = replace(
    FACTS,
    context_length=100_000,
    special_tokens={7: END.encode()},
    added_marks=("<think>", "</think>"),
)
THINKS = replace(WITH_END, chat_template=TEMPLATE)


def body(text: str, **fields) -> dict:
    return {"model": "demo", "messages": [{"role": "user", "content": text}], **fields}


def spans(engine: ScriptedEngine) -> list[int]:
    return [*memoryview(engine.requests[-1].plain_spans).cast("i")]


def test_the_engine_is_told_where_they_stand(serve):
    engine = ScriptedEngine(deltas("ok"))
    client = serve(engine, FixedCatalog(facts=WITH_END))
    client.post(CHAT, json=body(f"ä{END}"))
    text = engine.requests[0].text
    assert (text.index(END), spans(engine)) == (7, [7, 14])


@pytest.mark.parametrize("text", ["hi", "a" * 40_000])
def test_of_other_texts_nothing_is_said(serve, text):
    engine = ScriptedEngine(deltas("ok"))
    serve(engine, FixedCatalog(facts=WITH_END)).post(CHAT, json=body(text))
    assert engine.requests[0].plain_spans == b""


@pytest.mark.parametrize(("characters", "in_child"), [(1_000, False), (9_000, True)])
def test_a_long_prompt_that_holds_some_is_rendered_in_a_child(serve, characters, in_child):
    engine = ScriptedEngine(deltas("ok"))
    client = serve(engine, FixedCatalog(facts=WITH_END))
    client.post(CHAT, json=body("a" * characters + END))
    assert len(spans(engine)) == 2
    assert ("rendered" in client.sandbox.functions) is in_child


@pytest.mark.parametrize("where", ["setting", "models.yaml"])
def test_they_may_be_special_as_before(serve, tmp_path, where):
    engine = ScriptedEngine(deltas("ok"))
    settings = {}
    if where == "setting":
        settings["callers_control_tokens"] = "special"
    else:
        own = "models: {demo: {weights: w, callers_control_tokens: special}}"
        (tmp_path / "none.yaml").write_text(own)
    serve(engine, FixedCatalog(facts=WITH_END), **settings).post(CHAT, json=body(END))
    assert engine.requests[0].plain_spans == b""


def test_models_yaml_has_the_last_word(serve, tmp_path):
    own = "models: {demo: {weights: w, callers_control_tokens: plain}}"
    (tmp_path / "none.yaml").write_text(own)
    engine = ScriptedEngine(deltas("ok"))
    client = serve(engine, FixedCatalog(facts=WITH_END), callers_control_tokens="special")
    client.post(CHAT, json=body(END))
    assert spans(engine)


def test_an_ensemble_that_cannot_keep_them_plain_refuses_them_and_nothing_else(serve):
    engine = ScriptedEngine(deltas("ok"))
    catalog = FixedCatalog(facts=WITH_END, capabilities=CAPABILITIES - {"plain_spans"})
    client = serve(engine, catalog)
    assert client.post(CHAT, json=body("hi")).status_code == 200
    answer = client.post(CHAT, json=body(f"a{END}"))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "unsupported_parameter")
    assert error["param"] == "messages"
    assert f"'{END}'" in error["message"]
    assert "CALLERS_CONTROL_TOKENS" in error["message"]


@pytest.mark.parametrize(
    ("text", "opens", "reasoning"),
    [("hi", True, "a"), ("hi", False, None), ("hi <think>", False, None)],
)
def test_only_the_template_makes_the_answer_begin_with_reasoning(serve, text, opens, reasoning):
    facts = replace(
        THINKS, chat_template=TEMPLATE.replace("{{ m.content }}<|end|>", "{{ m.content }}")
    )
    client = serve(ScriptedEngine(deltas("a</think>b")), FixedCatalog(facts=facts))
    answer = client.post(CHAT, json=body(text, add_generation_prompt=opens)).json()
    message = answer["choices"][0]["message"]
    assert message.get("reasoning") == reasoning
