"""Structured output through OpenAI's SDK, over the running stack."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Annotated, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel, Field

ASKED = [{"role": "user", "content": "Tell me about yourself in JSON."}]


class Mood(str, Enum):
    GOOD = "good"
    BAD = "bad"


class Address(BaseModel):
    street: Literal["Main Street", "Mill Lane"]
    number: Annotated[int, Field(ge=1, le=99)]


class Person(BaseModel):
    """What the SDK makes of it has $defs, $ref, enums, unions and additionalProperties."""

    mood: Mood
    home: Address
    second_home: Address | None
    colours: Annotated[list[Literal["red", "green"]], Field(max_length=3)]
    is_kind: bool


class Tree(BaseModel):
    leaf: Literal["a", "b"]
    child: Tree | None


def whole(client: openai.OpenAI, **fields) -> str:
    answer = client.chat.completions.create(
        model="demo", messages=ASKED, max_tokens=300, seed=3, temperature=1.0, **fields
    )
    assert answer.choices[0].finish_reason == "stop"
    return answer.choices[0].message.content


@pytest.mark.parametrize("kind", [Person, Tree])
def test_parse_into_a_pydantic_model(client, kind):
    answer = client.chat.completions.parse(
        model="demo", messages=ASKED, response_format=kind, max_tokens=600
    )
    parsed = answer.choices[0].message.parsed
    assert isinstance(parsed, kind)
    assert json.loads(answer.choices[0].message.content) == json.loads(parsed.model_dump_json())


PLACE = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "zip": {"enum": [1, 2]}},
    "required": ["city"],
    "additionalProperties": False,
}


def is_place(text: str) -> bool:
    found = json.loads(text)
    return found.pop("city") in ("Paris", "Rome") and set(found) <= {"zip"}


FORMS = {
    "guided_json": ({"guided_json": PLACE}, is_place),
    "guided_choice": (
        {"guided_choice": ["a.b", 'c|"d"\n', "é🙂/"]},
        {"a.b", 'c|"d"\n', "é🙂/"}.__contains__,
    ),
    "guided_regex": (
        {"guided_regex": r"\d{3}-[ab]{2}"},
        lambda text: re.fullmatch(r"\d{3}-[ab]{2}", text),
    ),
    "guided_grammar": (
        {"guided_grammar": 'root ::= "<" root ">" | "o"'},
        lambda text: re.fullmatch(r"<*o>*", text) and text.count("<") == text.count(">"),
    ),
    "lark": (
        {"guided_grammar": 'start: GREETING " " NAME\nGREETING: "hi" | "ho"\nNAME: /[A-C]{1,9}!/'},
        lambda text: re.fullmatch(r"h[io] [A-C]{1,9}!", text),
    ),
    "structural tag": (
        {
            "response_format": {
                "type": "structural_tag",
                "format": {
                    "type": "tag",
                    "begin": "<place>",
                    "content": {"type": "json_schema", "json_schema": PLACE},
                    "end": "</place>",
                },
            }
        },
        lambda text: is_place(re.fullmatch("<place>(.*)</place>", text, re.DOTALL)[1]),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_enforced(client, form):
    body, conforms = FORMS[form]
    assert conforms(whole(client, extra_body=body))


def test_triggered_tags_leave_the_text_free(client):
    tag = {
        "type": "structural_tag",
        "structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}],
        "triggers": ["<n>"],
    }
    free = client.chat.completions.create(model="demo", messages=ASKED, temperature=0)
    guided = client.chat.completions.create(
        model="demo", messages=ASKED, temperature=0, extra_body={"response_format": tag}
    )
    assert guided.choices[0].message.content == free.choices[0].message.content


REFUSED = {
    "guided_json": ({"guided_json": {"type": "nothing"}}, 422, "invalid_schema"),
    "response_format.json_schema.schema": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"$ref": "#/nowhere"}},
            }
        },
        422,
        "invalid_schema",
    ),
    "json_schema": (  # a schema, but not one that xgrammar has a grammar for
        {"json_schema": {"type": "array", "contains": {}, "minContains": 2}},
        422,
        "invalid_schema",
    ),
    "guided_regex": ({"guided_regex": "(?=a)b"}, 400, "invalid_parameter"),
    "ebnf": ({"ebnf": "root ::= nobody"}, 400, "invalid_parameter"),
    "regex": ({"guided_json": {}, "regex": "a"}, 400, "invalid_parameter"),
    "guided_decoding_backend": (
        {"guided_decoding_backend": "outlines"},
        400,
        "unsupported_parameter",
    ),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_cannot_be_is_refused_under_the_callers_name(stack, field):
    body, status, code = REFUSED[field]
    asked = {"model": "demo", "messages": ASKED, "stream": True, **body}
    answer = httpx.post(f"{stack.url}/v1/chat/completions", json=asked)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, field), error
    assert "guided_decoding_guide" not in error["message"]
