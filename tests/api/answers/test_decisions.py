"""POST /v1/decisions: what the model is asked, what it answers, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proxy.domain.constraint import GuideKind
from proxy.domain.identity import Limits
from proxy.domain.model import CAPABILITIES
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from proxy.generation.decisions import labels_of
from tests.api.formats import error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine
from tests.doubles.key_source import PEPPER, KeysInMemory

ASK = {"type": "predicate", "instructions": "It rains."}
TWO = [{"value": "a"}, {"value": "b"}]
CHOOSE = {"type": "choice", "instructions": "Which?", "choices": TWO}


def letters(**logs: float) -> list[TokenDelta]:
    top = tuple(Alternative(letter.encode(), log) for letter, log in logs.items())
    one = TokenLogProb(top[0].log_prob, top)
    return [TokenDelta((b"A",), 7, finish=FinishReason.LENGTH, log_probs=(one,))]


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(letters(A=-0.1, B=-2.4, C=-9.0))


def decide(client, *questions, **fields):
    body = {"model": "demo", "input": "wet", "questions": [*questions], **fields}
    return client.post("/v1/decisions", json=body)


def nested(levels: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for _ in range(levels - 1):
        found = {"a": found}
    return found


def test_each_question_is_a_chat_that_ends_with_one_label(serve, engine):
    items = [
        {"role": "system", "content": "Be strict."},
        {"role": "user", "content": [{"type": "input_text", "text": "How is it?"}]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "rain"},
    ]
    described = {"value": True, "description": "always"}
    questions = [ASK, {**CHOOSE, "name": "it", "choices": [described, {"value": "true"}]}]
    answer = decide(serve(engine), *questions, input=items).json()
    first, second = engine.requests
    text = first.text or ""
    assert text.startswith("<system>Be strict.\n<user>How is it?\n<assistant>")
    assert "rain" in text
    assert text.endswith(
        "Question: Is this statement true or false?\nIt rains.\nA: true\nB: false\n"
        "Answer with the letter of one option only.\n<assistant>"
    )
    assert 'Which?\nA: true - always\nB: "true"\nAnswer' in (second.text or "")
    for each in engine.requests:
        assert (each.constraint.kind, each.constraint.text) == (GuideKind.REGEX, "[AB]")
        assert (each.max_tokens, each.sampling.temperature) == (1, 0)
        assert each.sampling.top_log_probs == 20
    weights = [2.718281828**-0.1, 2.718281828**-2.4]
    likely = weights[0] / sum(weights)
    assert answer["model"] == "demo"
    assert answer["answers"][0]["probability"] == pytest.approx(likely)
    assert answer["answers"][1] == {
        "type": "choice",
        "name": "it",
        "choice": True,
        "confidence": pytest.approx(likely),
        "probabilities": [
            {"value": True, "probability": pytest.approx(likely)},
            {"value": "true", "probability": pytest.approx(1 - likely)},
        ],
    }
    assert answer["usage"] == {
        "input_tokens": 14,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 16,
    }


def test_a_question_follows_the_users_last_words(serve, engine):
    decide(serve(engine), ASK)
    assert engine.requests[0].text.startswith("<user>wet\n\nQuestion: ")


def test_json_is_read_as_compact_text(serve, engine):
    part = {"type": "input_json", "data": [{"a": [1, None]}, {"b": "é"}]}
    given = [{"role": "user", "content": [{"type": "input_text", "text": "See "}, part]}]
    decide(serve(engine), {**ASK, "instructions": [part]}, input=given)
    assert engine.requests[0].text.startswith('<user>See [{"a":[1,null]},{"b":"é"}]\n\nQuestion: ')
    assert '\n[{"a":[1,null]},{"b":"é"}]\nA: true' in engine.requests[0].text


def test_a_score_is_the_expected_level(serve, engine):
    levels = [{"label": "low"}, {"label": "mid"}, {"label": "high", "description": "burning"}]
    answer = decide(serve(engine), {"type": "score", "instructions": "How?", "levels": levels})
    (score,) = answer.json()["answers"]
    chances = [one["probability"] for one in score["probabilities"]]
    assert sum(chances) == pytest.approx(1)
    assert score["score"] == pytest.approx(chances[1] + 2 * chances[2])
    assert score["confidence"] == chances[0]
    assert [(one["value"], one["label"]) for one in score["probabilities"]] == [
        (0, "low"), (1, "mid"), (2, "high")
    ]  # fmt: skip


@pytest.mark.parametrize(("options", "length", "asked"), [(10, 1, 1), (11, 2, 2), (255, 3, 30)])
def test_labels_of_more_letters_are_asked_letter_by_letter(serve, options, length, asked):
    labels = labels_of(options)
    assert len(set(labels)) == options
    assert {len(one) for one in labels} == {length}
    engine = ScriptedEngine(letters(**dict.fromkeys("ABCDEFGHIJ", -2.3)))
    choices = [{"value": str(at)} for at in range(options)]
    (answer,) = decide(serve(engine), {**CHOOSE, "choices": choices}).json()["answers"]
    assert sum(one["probability"] for one in answer["probabilities"]) == pytest.approx(1)
    assert len(engine.requests) == asked
    assert len({one.id for one in engine.requests}) == asked
    assert engine.requests[0].text + labels[0][: length - 1] in {
        one.text for one in engine.requests
    }


REFUSED = [
    ({"questions": []}, "questions"),
    ({"questions": [ASK] * 401}, "questions"),
    ({"questions": [{**CHOOSE, "choices": TWO[:1]}]}, "questions[0].choices"),
    ({"questions": [ASK, {**CHOOSE, "choices": [*TWO, {"value": "a"}]}]}, "questions[1].choices"),
    ({"questions": [{**CHOOSE, "choices": [{"value": str(n)} for n in range(256)]}]},
     "questions[0].choices"),
    ({"questions": [{**CHOOSE, "choices": [{"value": str(n)} for n in range(250)]}] * 17},
     "questions"),
    ({"questions": [{**CHOOSE, "choices": [{"value": 1}, {"value": 2}]}]},
     "questions[0].choices[0].value"),
    ({"questions": [{"type": "box", "instructions": "?"}]}, "questions[0]"),
    ({"questions": [{**ASK, "instructions": [{"type": "input_image", "image_url": "x"}]}]},
     "questions[0].instructions[0]"),
    ({"questions": [{**ASK, "instructions": [{"type": "input_json", "data": 5}]}]},
     "questions[0].instructions"),
    ({"questions": [{**ASK, "instructions": [{"type": "input_json", "data": nested(33)}]}]},
     "questions[0].instructions"),
    ({"questions": [{**ASK, "instructions":
        [{"type": "input_json", "data": {"a": [0] * 10_000}}]}]}, "questions[0].instructions"),
    ({"questions": [{**ASK, "instructions": [{"type": "input_json", "data": {}, "text": "a"}]}]},
     "questions[0].instructions"),
    ({"questions": [{**ASK, "instructions": [{"type": "input_json", "data": {}, "more": 1}]}]},
     "questions[0].instructions[0].more"),
    ({"questions": [ASK], "input": []}, "input"),
    ({"questions": [ASK], "input": [{"type": "reasoning"}]}, "input[0]"),
    ({"questions": [ASK], "input": [{"type": "function_call_output", "call_id": "1",
        "output": "x"}]}, "input"),
    ({"questions": [ASK] * 400, "input": "a" * 50_000}, "questions"),
    ({"questions": [ASK] * 400, "input": [{"type": "function_call", "call_id": "1",
        "name": "a" * 50_000, "arguments": "{}"}]}, "questions"),
    ({"questions": [ASK] * 400, "input": [{"role": "user", "content": "a"}] * 200}, "questions"),
    ({"questions": [ASK], "temperature": 1}, "temperature"),
    ({"questions": [ASK], "stream": True}, "stream"),
]  # fmt: skip


def test_what_is_wrong_is_refused_by_name(idle):
    wrong = []
    for fields, path in REFUSED:
        answer = decide(idle, **fields)
        if answer.status_code != 400 or error_of(answer)["param"] != path:
            wrong.append((path, answer.text[:300]))
    assert not wrong


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_json_has_not_are_refused(idle, number):
    part = {"type": "input_json", "data": {"a": "?"}}
    body = {"model": "demo", "input": "x", "questions": [{**ASK, "instructions": [part]}]}
    answer = idle.post("/v1/decisions", content=json.dumps(body).replace('"?"', number))
    assert (answer.status_code, error_of(answer)["param"]) == (400, "questions[0].instructions")


@pytest.mark.parametrize(
    "lacking",
    [
        {"capabilities": CAPABILITIES - {"constraint"}},
        {"capabilities": CAPABILITIES - {"top_log_probs"}},
        {"capabilities": CAPABILITIES - {"log_probs"}},
        {"facts": replace(FACTS, guide_kinds=(GuideKind.JSON,))},
    ],
)
def test_a_model_that_cannot_tell_is_refused_by_name(serve, engine, lacking):
    answer = decide(serve(engine, FixedCatalog(**lacking)), ASK)
    assert (answer.status_code, error_of(answer)["param"]) == (400, "model")
    assert not engine.requests


def test_an_engine_without_the_log_probabilities_has_failed(serve):
    answer = decide(serve(ScriptedEngine(letters(x=-1.0))), ASK)
    assert (answer.status_code, error_of(answer)["code"]) == (500, "internal_error")


@pytest.mark.parametrize(("limit", "status", "left"), [(29, 429, "29"), (30, 200, "0")])
def test_all_letters_of_the_labels_are_reserved_at_once(serve, limit, status, left):
    engine, keys = ScriptedEngine(letters(**dict.fromkeys("ABCDEFGHIJ", -2.3))), KeysInMemory()
    client = serve(engine, keys=keys, key_pepper=PEPPER)
    keys.add_tenant("acme", limits=Limits(output_tokens_per_minute=limit))
    client.headers["authorization"] = f"Bearer {keys.add('own1')}"
    answer = decide(client, {**CHOOSE, "choices": [{"value": str(at)} for at in range(255)]})
    assert answer.status_code == status
    assert answer.headers["x-ratelimit-remaining-tokens"] == left
    assert len(engine.requests) == (0 if status == 429 else 30)
