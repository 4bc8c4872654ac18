"""How prompts become tokens, and how tokens are called: fields of both endpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from proxy.domain.model import LoadedModel
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from proxy.domain.request import PromptLimit
from proxy.language.prompting import chat_template
from tests.api.answers.test_parameters import LimitedCatalog
from tests.api.formats import BOTH, CHAT, CHAT_BODY, TEXT, TEXT_BODY, error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas


class InfillingCatalog(FixedCatalog):
    async def load(self):
        facts = replace(FACTS, infilling=("<pre>", "<suf>", "<mid>"))
        return (LoadedModel(name="demo", facts=facts),)


def asked(serve, path, body, catalog=None, **settings):
    """What the engine got."""
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, catalog, **settings).post(path, json=body)
    assert response.status_code == 200, response.text
    return engine.requests


def test_the_first_chat_compiles_no_template(serve):
    facts = replace(FACTS, chat_template=f"{FACTS.chat_template}{{# compiled once #}}")
    client = serve(ScriptedEngine(deltas("a")), FixedCatalog(facts=facts))
    caches = chat_template.compiled, chat_template.variables
    before = [one.cache_info().misses for one in caches]
    assert client.post(CHAT, json=CHAT_BODY).is_success
    assert [one.cache_info().misses for one in caches] == before


def test_a_model_with_a_broken_template_still_completes(serve):
    facts = replace(FACTS, chat_template="{% for %}")
    client = serve(ScriptedEngine(deltas("a")), FixedCatalog(facts=facts))
    assert client.post(TEXT, json=TEXT_BODY).status_code == 200
    assert client.post(CHAT, json=CHAT_BODY).status_code == 400


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"truncate_prompt_tokens": 5}, PromptLimit(tokens=5)),
        ({"truncate_prompt_tokens": -1}, PromptLimit(tokens=None)),
        (
            {"truncate_prompt_tokens": 5, "truncation_side": "right"},
            PromptLimit(tokens=5, keeps_start=True),
        ),
        ({"truncate_prompt_tokens": 5, "truncation_side": "left"}, PromptLimit(tokens=5)),
    ],
)
@BOTH
def test_where_a_prompt_is_cut(serve, path, body, fields, limit):
    (seen,) = asked(serve, path, {**body, **fields})
    assert seen.prompt_limit == limit


def test_a_model_that_cannot_cut_says_so_in_the_callers_words(serve):
    client = serve(ScriptedEngine(deltas("a")), LimitedCatalog())
    error = error_of(client.post(CHAT, json={**CHAT_BODY, "truncate_prompt_tokens": 5}))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "truncate_prompt_tokens")


@pytest.mark.parametrize("given", [None, True, False])
@BOTH
def test_special_tokens_are_added_where_that_is_usual_or_asked_for(serve, path, body, given):
    (seen,) = asked(serve, path, {**body, "add_special_tokens": given})
    assert seen.add_special_tokens is ((path == TEXT) if given is None else given)


def test_a_chat_of_token_ids_has_no_template(serve):
    (seen,) = asked(serve, CHAT, {**CHAT_BODY, "prompt_token_ids": [5, 6]})
    assert (seen.text, seen.token_ids) == (None, (5, 6))


@pytest.mark.parametrize(
    "field",
    [
        {"documents": [{"a": 1}]},
        {"chat_template": "x"},
        {"reasoning_effort": "none"},
        {"thinking_token_budget": 5},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
    ],
)
def test_a_chat_of_token_ids_ignores_no_field_of_the_template(idle, field):
    body = {**CHAT_BODY, "prompt_token_ids": [5], **field}
    error = error_of(idle.post(CHAT, json=body))
    assert error["param"] == next(iter(field))


@pytest.mark.parametrize("prompt", ["", None])
def test_an_empty_prompt_is_the_token_that_begins_a_document(serve, prompt):
    (seen,) = asked(serve, TEXT, {**TEXT_BODY, "prompt": prompt})
    assert (seen.text, seen.add_special_tokens) == ("<s>", False)


def test_an_empty_prompt_among_others_begins_a_document(serve):
    seen = asked(serve, TEXT, {**TEXT_BODY, "prompt": ["", "b"]})
    assert [(one.text, one.add_special_tokens) for one in seen] == [("<s>", False), ("b", True)]


@pytest.mark.parametrize("adds", [True, False])
def test_what_is_said_of_special_tokens_holds_for_an_empty_prompt(serve, adds):
    (seen,) = asked(serve, TEXT, {**TEXT_BODY, "prompt": "", "add_special_tokens": adds})
    assert (seen.text, seen.add_special_tokens) == ("", adds)


def test_an_empty_prompt_of_a_model_without_such_a_token_is_left_to_its_tokenizer(serve):
    catalog = FixedCatalog(facts=replace(FACTS, bos_token=""))
    (seen,) = asked(serve, TEXT, {**TEXT_BODY, "prompt": ""}, catalog)
    assert (seen.text, seen.add_special_tokens) == ("", True)


def test_an_empty_prompt_is_echoed_as_it_was_given(serve):
    engine = ScriptedEngine(deltas("a"))
    body = {**TEXT_BODY, "prompt": None, "echo": True}
    assert serve(engine).post(TEXT, json=body).json()["choices"][0]["text"] == "a"


def test_a_prompt_that_is_missing_is_missed(idle):
    error = error_of(idle.post(TEXT, json={"model": "demo"}))
    assert (error["code"], error["param"]) == ("missing_parameter", "prompt")


def test_the_document_says_that_a_prompt_may_be_null(idle):
    document = idle.get("/openapi.json").json()
    schema = document["components"]["schemas"]["CompletionBody"]
    assert "prompt" in schema["required"]
    assert {"type": "null"} in schema["properties"]["prompt"]["anyOf"]


@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"stream": True}])
def test_a_best_of_nought_asks_for_no_more_than_n(serve, fields):
    seen = asked(serve, TEXT, {**TEXT_BODY, "best_of": 0, **fields})
    assert len(seen) == fields.get("n", 1)


@pytest.mark.parametrize("prompt", ["a", ["a", "b"]])
def test_a_suffix_is_written_as_the_model_was_trained(serve, prompt):
    body = {**TEXT_BODY, "prompt": prompt, "suffix": "z"}
    seen = asked(serve, TEXT, body, InfillingCatalog())
    assert [one.text for one in seen] == [f"<pre>{one}<suf>z<mid>" for one in prompt]


def test_a_suffix_is_refused_where_the_model_has_no_tokens_for_it(idle):
    error = error_of(idle.post(TEXT, json={**TEXT_BODY, "suffix": "z"}))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "suffix")


@pytest.mark.parametrize(
    "fields", [{"echo": True}, {"prompt": [1, 2]}, {"nvext": {"token_data": [1]}}]
)
def test_a_suffix_goes_with_a_text_alone(serve, fields):
    client = serve(ScriptedEngine(), InfillingCatalog())
    response = client.post(TEXT, json={**TEXT_BODY, "suffix": "z", **fields})
    assert error_of(response)["param"] == "suffix"


def test_a_template_of_the_callers_own_is_refused_unless_the_registry_allows(serve, tmp_path):
    body = {**CHAT_BODY, "chat_template": "[{{ messages[0].content }}]"}
    error = error_of(serve(ScriptedEngine()).post(CHAT, json=body))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "chat_template")
    models = {"models": {"demo": {"weights": "w", "chat_template": True}}}
    (tmp_path / "none.yaml").write_text(yaml.safe_dump(models))
    (seen,) = asked(serve, CHAT, body)
    assert seen.text == "[hi]"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{% for %}",
        "{{ cycler.__init__.__globals__ }}",
        "{% set x = messages.append(1) %}",
        "{% include '/etc/passwd' %}",
        "{{ range(10000000) | list }}",
    ],
)
def test_a_template_of_the_callers_own_runs_in_the_sandbox(serve, tmp_path, template):
    models = {"models": {"demo": {"weights": "w", "chat_template": True}}}
    (tmp_path / "none.yaml").write_text(yaml.safe_dump(models))
    engine = ScriptedEngine()
    response = serve(engine).post(CHAT, json={**CHAT_BODY, "chat_template": template})
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, "chat_template")
    assert not engine.requests


LOGGED = TokenDelta(
    (b"a",),
    prompt_tokens=1,
    finish=FinishReason.LENGTH,
    token_ids=(7,),
    log_probs=(TokenLogProb(-1.0, (Alternative(b"b", -0.5, 8), Alternative(b"a", -1.0, 7)), 7),),
)


def test_tokens_of_log_probs_may_be_called_by_their_ids(serve):
    engine = ScriptedEngine([LOGGED])
    fields = {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": True}
    (choice,) = serve(engine).post(CHAT, json={**CHAT_BODY, **fields}).json()["choices"]
    (token,) = choice["logprobs"]["content"]
    assert token["token"] == "token_id:7"
    assert [one["token"] for one in token["top_logprobs"]] == ["token_id:8", "token_id:7"]
    assert token["bytes"] == [97]
    assert (engine.requests[0].wants_token_ids, engine.requests[0].wants_log_prob_ids) == (1, 1)
    fields = {"logprobs": 2, "return_tokens_as_token_ids": True}
    (choice,) = serve(engine).post(TEXT, json={**TEXT_BODY, **fields}).json()["choices"]
    assert choice["logprobs"]["tokens"] == ["token_id:7"]
    assert choice["logprobs"]["top_logprobs"] == [{"token_id:8": -0.5, "token_id:7": -1.0}]


@pytest.mark.parametrize(
    ("skips", "spaces", "status"),
    [(None, True, 200), (True, True, 200), (False, False, 200), (False, True, 400)],
)
def test_spaces_between_special_tokens_are_never_added(serve, skips, spaces, status):
    fields = {"skip_special_tokens": skips, "spaces_between_special_tokens": spaces}
    response = serve(ScriptedEngine(deltas("a"))).post(CHAT, json={**CHAT_BODY, **fields})
    assert response.status_code == status
    if status == 400:
        assert error_of(response)["param"] == "spaces_between_special_tokens"
