"""What an answer must look like: fields to constraint, and what is refused of them."""

from __future__ import annotations

import json
from functools import reduce

import pytest

from proxy.domain.constraint import GuideKind
from tests.api.formats import ASKED, CHAT, SCHEMA, named, tag
from tests.doubles.engine import ScriptedEngine, deltas

CONSTRAINTS = [
    ({"response_format": {"type": "json_object"}}, GuideKind.JSON_SCHEMA, '{"type": "object"}'),
    (
        {"response_format": {"type": "json_object", "schema": {"type": "null"}}},
        GuideKind.JSON_SCHEMA,
        '{"type": "null"}',
    ),
    ({"response_format": {"type": "json"}}, GuideKind.JSON_SCHEMA, '{"type": "object"}'),
    (named({"type": "null"}, strict=True), GuideKind.JSON_SCHEMA, '{"type": "null"}'),
    ({"guided_json": '{"type":"null"}'}, GuideKind.JSON_SCHEMA, '{"type": "null"}'),
    ({"json_schema": {"type": "null"}}, GuideKind.JSON_SCHEMA, '{"type": "null"}'),
    *(
        (named({"type": "null"}, strict=True, name=name), GuideKind.JSON_SCHEMA, '{"type": "null"}')
        for name in ("Summary bullets", "要約 📝", "\"'\\\n\0", "é" * 64)
    ),
    ({"guided_regex": "a+"}, GuideKind.REGEX, "a+"),
    ({"regex": "a+"}, GuideKind.REGEX, "a+"),
    ({"response_format": {"type": "regex", "regex": "a+"}}, GuideKind.REGEX, "a+"),
    ({"guided_choice": ["a.b", "c|d\n"]}, GuideKind.REGEX, r"a\.b|c\|d\n"),
    ({"guided_grammar": 'root ::= "a"'}, GuideKind.GRAMMAR, 'root ::= "a"'),
    ({"ebnf": 'root ::= "a"'}, GuideKind.GRAMMAR, 'root ::= "a"'),
    (
        {"guided_grammar": 'start: "a"'},
        GuideKind.GRAMMAR,
        'root ::= start\nstart ::= "a"\n',
    ),
    ({"structured_outputs": {"choice": ["a", "b"]}}, GuideKind.REGEX, "a|b"),
    (
        {"structured_outputs": {"json_object": True}},
        GuideKind.JSON_SCHEMA,
        '{"type": "object"}',
    ),
    (
        tag(format={"type": "any_text"}),
        GuideKind.STRUCTURAL_TAG,
        '{"type": "structural_tag", "format": {"type": "any_text"}}',
    ),
]


@pytest.mark.parametrize(("body", "kind", "text"), CONSTRAINTS)
def test_each_field_becomes_the_engines_constraint(serve, body, kind, text):
    engine = ScriptedEngine(deltas("a"))
    assert serve(engine).post(CHAT, json={**ASKED, **body}).status_code == 200
    constraint = engine.requests[0].constraint
    assert (constraint.kind, constraint.text) == (kind, text)


def test_text_and_no_format_leave_the_answer_free(serve):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine)
    for body in ({}, {"response_format": {"type": "text"}}, {"guided_decoding_backend": "auto"}):
        answer = client.post(CHAT, json={**ASKED, **body})
        assert engine.requests[-1].constraint is None
        assert not {"x-attempts", "x-unenforced-keywords"} & set(answer.headers)


def test_older_structural_tags_become_triggered_tags(serve):
    engine = ScriptedEngine(deltas("a"))
    structure = {"begin": "<a>", "schema": SCHEMA, "end": "</a>"}
    serve(engine).post(CHAT, json={**ASKED, **tag(structures=[structure], triggers=["<a"])})
    found = json.loads(engine.requests[0].constraint.text)["format"]
    assert (found["type"], found["triggers"]) == ("triggered_tags", ["<a"])
    (one,) = found["tags"]
    assert (one["begin"], one["end"]) == ("<a>", "</a>")
    assert one["content"]["json_schema"] == SCHEMA


REFUSED = [
    ({"guided_json": SCHEMA, "regex": "a"}, 400, "invalid_parameter", "regex"),
    (
        {"response_format": {"type": "json_object"}, "guided_choice": ["a"]},
        400,
        "invalid_parameter",
        "guided_choice",
    ),
    (
        {"structured_outputs": {"regex": "a", "grammar": "b"}},
        400,
        "invalid_parameter",
        "structured_outputs.grammar",
    ),
    ({"response_format": {"type": "xml"}}, 400, "invalid_parameter", "response_format"),
    (
        {"response_format": {"type": "json_schema"}},
        400,
        "missing_parameter",
        "response_format.json_schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        400,
        "missing_parameter",
        "response_format.json_schema.schema",
    ),
    *(
        (
            named(SCHEMA, strict=True, name=name),
            400,
            "invalid_parameter",
            "response_format.json_schema.name",
        )
        for name in ("", "é" * 65)
    ),
    (tag(triggers=["<a"]), 400, "invalid_parameter", "response_format"),
    (tag(structures=[{}], triggers=["<a"]), 400, "invalid_parameter", "response_format"),
    ({"guided_grammar": "start: nobody"}, 400, "invalid_parameter", "guided_grammar"),
    (
        {"guided_decoding_backend": "outlines"},
        400,
        "unsupported_parameter",
        "guided_decoding_backend",
    ),
    (
        {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " "}},
        400,
        "unsupported_parameter",
        "structured_outputs.whitespace_pattern",
    ),
    (
        named({"type": "thing"}, strict=False),
        422,
        "invalid_schema",
        "response_format.json_schema.schema",
    ),
    ({"guided_json": "{"}, 422, "invalid_schema", "guided_json"),
    (
        tag(format={"type": "json_schema", "json_schema": {"type": "thing"}}),
        422,
        "invalid_schema",
        "response_format",
    ),
]


@pytest.mark.parametrize(("body", "status", "code", "param"), REFUSED)
def test_what_is_wrong_is_refused_under_the_callers_name(idle, body, status, code, param):
    answer = idle.post(CHAT, json={**ASKED, **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)


def test_a_conflict_names_both_fields(idle):
    answer = idle.post(CHAT, json={**ASKED, "regex": "a", "ebnf": "b"})
    message = answer.json()["error"]["message"]
    assert "'regex'" in message
    assert "'ebnf'" in message


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "object", "title": "x" * 256_000}, "more than 256000 bytes"),
        (reduce(lambda inner, _: {"items": inner}, range(64), {}), "more than 64 levels"),
        ({"properties": {f"p{at}": {} for at in range(5001)}}, "5001 properties, more than"),
    ],
    ids=["bytes", "depth", "properties"],
)
def test_a_schema_is_bounded(idle, schema, said):
    answer = idle.post(CHAT, json={**ASKED, "guided_json": schema})
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]
