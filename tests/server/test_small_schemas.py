"""The demo model under small schemas, raw prompts, and questions that none of its tools fits."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema_rs
import pytest

# The schemas are not in the training text of the demo model; four of the prompts are, in chats.
ROWS = json.loads(Path(__file__).with_name("small_schemas.json").read_text())
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
TEXT = (
    "The harbor of Genoa reopened on Thursday. Divers had removed a sunken barge. "
    "Ferries to Corsica leave again at noon."
)
QUESTIONS = [
    f"Summarize the following text in three bullets: {TEXT}",
    f"Summarize: {TEXT}",
    f"What is this text about? {TEXT}",
    f"Who is named here? {TEXT}",
    f"Write a headline for this article: {TEXT}",
]
# The topics are not in the training text; forms of some questions and some keys are.
UNRELATED = """\
Summarize the paper in 3 bullet points.
What is machine learning?
How tall is Mount Everest?
Who painted the Mona Lisa?
Write a haiku about autumn.
Explain quantum entanglement.
Why do cats purr?
What is the meaning of life?
Translate "good morning" to Portuguese.
Is 97 a prime number?
What is the plot of Hamlet?
How do I boil an egg?
Give me three names for a puppy.
What is the difference between a fruit and a vegetable?
Fix this sentence: me go home.
Who won the match?
What is a monad?
Tell me about the Great Wall.
Should I learn Rust or Go?
Write a limerick.
How do airplanes fly?
What is the speed of light?
Define entropy.
List three prime numbers.
What does HTTP stand for?
Suggest a title for my novel.
How many planets are there?
Explain tides to a child.
What is 12 times 12?
Can you proofread my essay?
""".splitlines()
FREE_STRINGS = {
    "Tell me a joke about cats.": ("setup", "punchline"),
    "Make me laugh about penguins.": ("opener", "closer"),
    "What is the capital of Peru?": ("answer", "why"),
    "Translate: where is the station?": ("source", "translation"),
    "Draft a letter to my landlord.": ("greeting", "body", "signature"),
    "Invent a superhero.": ("hero", "power", "weakness"),
    "Think about 17 * 23.": ("thinking", "final"),
    "Plan my evening.": ("first", "then", "last"),
}
BULLETS = {
    "type": "object",
    "properties": {"bullets": {"type": "array", "items": {"type": "string"}}},
    "required": ["bullets"],
    "additionalProperties": False,
}


def json_schema(name: str, schema: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


def asked(client, prompt: str, *, temperature: float = 0.7, **fields):
    answer = client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": prompt}],
        temperature=temperature,
        max_tokens=256,
        seed=2,
        **fields,
    )
    return answer.choices[0]


def test_most_answers_end_by_themselves_and_conform(client):
    def ask(row: dict):
        return asked(client, row["prompt"], response_format=json_schema(row["name"], row["schema"]))

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, ROWS))
    ended = [
        (row, answer.message.content)
        for row, answer in zip(ROWS, answers, strict=True)
        if answer.finish_reason == "stop"
    ]
    assert len(ended) >= 45
    assert all(jsonschema_rs.is_valid(row["schema"], json.loads(text)) for row, text in ended)


@pytest.mark.parametrize("form", [None, json_schema("Summary bullets", BULLETS)])
def test_a_question_about_a_text_calls_no_weather_tool(client, form):
    fields = {} if form is None else {"response_format": form}
    for question in QUESTIONS:
        choice = asked(client, question, tools=[WEATHER], tool_choice="auto", **fields)
        assert not choice.message.tool_calls
        assert choice.finish_reason == "stop"


def test_free_strings_end_at_temperature_0(client):
    endless = []
    for prompt, keys in FREE_STRINGS.items():
        fields = {key: {"type": "string"} for key in keys}
        schema = {"type": "object", "properties": fields, "required": [*keys]}
        form = json_schema("strings", {**schema, "additionalProperties": False})
        choice = asked(client, prompt, temperature=0.0, response_format=form)
        if choice.finish_reason != "stop":
            endless.append((prompt, choice.message.content))
    assert endless == []


@pytest.mark.parametrize(
    ("form", "most"), [(None, 2), (json_schema("Summary bullets", BULLETS), 5)]
)
def test_a_tool_that_has_nothing_to_do_with_a_question_is_left_alone(client, form, most):
    fields = {} if form is None else {"response_format": form}

    def ask(question: str):
        return asked(client, question, temperature=0.0, tools=[WEATHER], **fields)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, UNRELATED))
    called = [
        at for at, answer in zip(UNRELATED, answers, strict=True) if answer.message.tool_calls
    ]
    assert len(UNRELATED) == 30
    assert len(called) <= most, called
    assert UNRELATED[0] not in called


def test_a_raw_question_gets_a_sentence(client):
    def answer(prompt: str):
        return client.completions.create(
            model="demo", prompt=prompt, temperature=0.0, max_tokens=64
        ).choices[0]

    with ThreadPoolExecutor(8) as threads:
        answers = dict(zip(UNRELATED, threads.map(answer, UNRELATED), strict=True))
    without = [
        prompt
        for prompt, choice in answers.items()
        if choice.finish_reason != "stop" or len(choice.text.split()) < 3
    ]
    assert [prompt for prompt in without if prompt.endswith("?")] == []
    assert len(without) <= 4, without
