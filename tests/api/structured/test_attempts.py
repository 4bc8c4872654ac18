"""Answers that no grammar constrains: instructions, checks, further attempts, headers."""

from __future__ import annotations

import json

import pytest
import yaml

from proxy.domain.model import CAPABILITIES
from proxy.domain.output import FinishReason
from tests.api.formats import ASKED, CHAT, SCHEMA, TEXT, answering, named, tag
from tests.doubles.engine import FixedCatalog, ScriptedEngine, deltas

UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
NO_GUIDES = FixedCatalog(capabilities=CAPABILITIES - {"constraint"})
GOOD, BAD = '{"n": 1}', '{"n": "one"}'


# keywords that a grammar does not hold


def test_keywords_that_no_grammar_holds_are_named(serve):
    engine = ScriptedEngine(deltas("[1, 1]"))
    body = {**ASKED, **named(UNIQUE, strict=False), "stream": True}
    answer = serve(engine).post(CHAT, json=body)
    assert answer.headers["x-unenforced-keywords"] == "uniqueItems"
    assert "x-attempts" not in answer.headers


STRICT = [
    named(UNIQUE, strict=True),
    {"guided_json": UNIQUE},
    {"guided_json": json.dumps(UNIQUE)},
    {"nvext": {"guided_json": UNIQUE}},
    {"structured_outputs": {"json": UNIQUE}},
    {"json_schema": UNIQUE},
]


@pytest.mark.parametrize("body", STRICT, ids=[*map(str, range(len(STRICT)))])
def test_with_strict_they_are_checked_and_tried_again(serve, body):
    engine = answering("[1, 1]", "[1, 2]")
    answer = serve(engine).post(CHAT, json={**ASKED, **body})
    assert answer.json()["choices"][0]["message"]["content"] == "[1, 2]"
    assert answer.headers["x-attempts"] == "2"
    assert "x-unenforced-keywords" not in answer.headers
    assert all(request.constraint is not None for request in engine.requests)
    assert "non-unique" in engine.requests[1].text


def test_a_schema_that_the_grammar_holds_is_not_checked(serve):
    answer = serve(answering(BAD)).post(CHAT, json={**ASKED, **named(SCHEMA, strict=True)})
    assert answer.json()["choices"][0]["message"]["content"] == BAD
    assert "x-attempts" not in answer.headers


def test_an_unknown_format_is_named_even_with_strict_for_nobody_can_check_it(serve):
    schema = {"type": "string", "format": "colour"}
    answer = serve(answering('"red"')).post(CHAT, json={**ASKED, **named(schema, strict=True)})
    assert answer.headers["x-unenforced-keywords"] == "format"
    assert "x-attempts" not in answer.headers


# engines without guided decoding


def test_the_model_is_told_what_was_wrong_until_it_is_right(serve):
    engine = answering("no", BAD, GOOD)
    answer = serve(engine, NO_GUIDES).post(CHAT, json={**ASKED, "guided_json": SCHEMA, "seed": 5})
    assert answer.json()["choices"][0]["message"]["content"] == GOOD
    assert answer.headers["x-attempts"] == "3"
    first, second, third = engine.requests
    assert [request.constraint for request in engine.requests] == [None] * 3
    assert len({request.id for request in engine.requests}) == 3
    assert len({request.sampling.seed for request in engine.requests}) == 3
    assert second.text.startswith(first.text.removesuffix("<assistant>"))
    assert "it is not JSON" in second.text
    assert '$.n: "one" is not of type "integer"' in third.text
    assert json.dumps(SCHEMA) in third.text


def test_usage_counts_all_attempts(serve):
    client = serve(answering(BAD, GOOD), NO_GUIDES)
    usage = client.post(CHAT, json={**ASKED, "guided_json": SCHEMA}).json()["usage"]
    assert usage["prompt_tokens"] == 2 * 7
    assert usage["completion_tokens"] == len(BAD) + len(GOOD) + 2


def test_a_stream_is_held_back_until_it_conforms(serve):
    body = {**ASKED, "guided_json": SCHEMA, "stream": True}
    answer = serve(answering(BAD, GOOD), NO_GUIDES).post(CHAT, json=body)
    chunks = [json.loads(line[6:]) for line in answer.text.split("\n\n")[:-2]]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert text == GOOD
    assert answer.headers["x-attempts"] == "2"


def test_after_all_attempts_it_is_an_error_with_the_path(serve):
    engine = answering(BAD)
    for body in ({}, {"stream": True}):
        answer = serve(engine, NO_GUIDES).post(CHAT, json={**ASKED, "guided_json": SCHEMA, **body})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (422, "schema_violation")
        assert error["param"] == "guided_json"
        assert "after 3 attempts: at $.n:" in error["message"]
    assert len(engine.requests) == 6


def test_an_answer_cut_by_the_limit_is_given_as_it_is(serve):
    engine = answering('{"n": ', finish=FinishReason.LENGTH)
    answer = serve(engine, NO_GUIDES).post(CHAT, json={**ASKED, "guided_json": SCHEMA})
    choice = answer.json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", '{"n": ')
    assert len(engine.requests) == 1


def test_each_choice_is_tried_on_its_own(serve):
    engine = answering(BAD, BAD, GOOD)
    body = {**ASKED, "guided_json": SCHEMA, "n": 2}
    answer = serve(engine, NO_GUIDES).post(CHAT, json=body)
    texts = [choice["message"]["content"] for choice in answer.json()["choices"]]
    assert texts == [GOOD, GOOD]
    assert answer.json()["usage"]["prompt_tokens"] == 3 * 7  # the first prompt is that of both


def test_regular_expressions_and_choices_are_checked_too(serve):
    for body in ({"guided_regex": "[ab]{2}"}, {"guided_choice": ["ab", "ba"]}):
        answer = serve(answering("abc", "ab"), NO_GUIDES).post(CHAT, json={**ASKED, **body})
        assert answer.json()["choices"][0]["message"]["content"] == "ab"


def test_a_text_prompt_is_tried_again_as_it_is(serve):
    engine = answering("c", "a")
    body = {"model": "demo", "prompt": "x", "guided_choice": ["a", "b"]}
    assert serve(engine, NO_GUIDES).post(TEXT, json=body).json()["choices"][0]["text"] == "a"
    assert {request.text for request in engine.requests} == {"x"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"ebnf": 'root ::= "a"'}, "ebnf"),
        (tag(format={"type": "any_text"}), "response_format"),
    ],
)
def test_what_cannot_be_checked_is_refused_there(serve, body, param):
    answer = serve(ScriptedEngine(), NO_GUIDES).post(CHAT, json={**ASKED, **body})
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", param)


@pytest.fixture
def optimistic(tmp_path):
    """Settings of a model that streams at once and may try once more."""
    path = tmp_path / "models.yaml"
    entry = {"weights": ".", "stream_mode": "optimistic", "max_retries": 1}
    path.write_text(yaml.safe_dump({"models": {"demo": entry}}))
    return {"models_file": path}


def test_an_optimistic_stream_goes_out_at_once_and_ends_with_the_error(serve, optimistic):
    engine = answering(BAD)
    client = serve(engine, NO_GUIDES, **optimistic)
    answer = client.post(CHAT, json={**ASKED, "guided_json": SCHEMA, "stream": True})
    *chunks, error, done, _ = answer.text.split("\n\n")
    assert answer.status_code == 200
    assert answer.headers["x-attempts"] == "1"
    assert len(chunks) > 1
    assert json.loads(error[6:])["error"]["code"] == "schema_violation"
    assert done == "data: [DONE]"
    assert len(engine.requests) == 1


def test_whole_answers_of_that_model_are_tried_again_as_often_as_it_says(serve, optimistic):
    engine = answering(BAD)
    client = serve(engine, NO_GUIDES, **optimistic)
    answer = client.post(CHAT, json={**ASKED, "guided_json": SCHEMA})
    assert "after 2 attempts" in answer.json()["error"]["message"]
    assert len(engine.requests) == 2
