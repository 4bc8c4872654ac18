"""The demo model under small schemas, and questions that none of its tools fits."""

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
BULLETS = {
    "type": "object",
    "properties": {"bullets": {"type": "array", "items": {"type": "string"}}},
    "required": ["bullets"],
    "additionalProperties": False,
}


def json_schema(name: str, schema: dict) -> dict:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


def asked(client, prompt: str, **fields):
    answer = client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": prompt}],
        temperature=0.7,
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
