"""/v1/decisions in a real tritonserver, from OpenAI's SDK, against log-probabilities of prompts."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai.lib.decisions_tool_runner import DecisionsToolRunner, DecisionsToolRunnerError

from proxy.api.decisions.decision_body import DecisionBody
from proxy.generation.decisions import labels_of
from tests.fixtures.stack import PLAIN

INPUT = "The parcel came a week late, and nobody told me."
LETTERS = [{"value": f"option {number}"} for number in range(255)]
QUESTIONS = [
    {"type": "predicate", "name": "angry", "instructions": "The customer is angry."},
    {
        "type": "choice",
        "instructions": "What is it about?",
        "choices": [
            {"value": "delivery", "description": "a parcel"},
            {"value": True},
            {"value": "true"},
        ],
    },
    {
        "type": "score",
        "instructions": [{"type": "input_json", "data": {"ask": "How urgent is it?"}}],
        "levels": [{"label": str(level)} for level in range(10)],
    },
    {"type": "choice", "instructions": "Which one?", "choices": LETTERS[:23]},
]


def chances(answer) -> list[float]:
    if answer.type == "predicate":
        return [answer.probability, 1 - answer.probability]
    return [one.probability for one in answer.probabilities]


def by_hand(stack, question: dict) -> list[float]:
    """Each label behind the chat's prompt, as a prompt that is echoed with log-probabilities."""
    body = DecisionBody.model_validate({"model": "demo", "input": INPUT, "questions": [question]})
    text = f"{INPUT}\n\n{body.questions[0].text()}"
    chat = {"model": "demo", "messages": [{"role": "user", "content": text}]}
    render = PLAIN.post(f"{stack.url}/v1/chat/completions/render", json=chat).json()
    weights = []
    for label in labels_of(len(body.questions[0].options)):
        ids = [letter_id(stack, letter) for letter in label]
        given = {
            "model": "demo",
            "prompt": [*render["prompt_token_ids"], *ids],
            "max_tokens": 1,
            "echo": True,
            "logprobs": 0,
        }
        answer = PLAIN.post(f"{stack.url}/v1/completions", json=given).json()
        logs = answer["choices"][0]["logprobs"]["token_logprobs"]
        at = len(render["prompt_token_ids"])
        weights.append(logs[at : at + len(ids)])
    return shares(weights)


def shares(logs: list[list[float]]) -> list[float]:
    """Of labels, letter by letter."""
    found = []
    for label in logs:
        share = 1.0
        for place in range(len(label)):
            rivals = {
                tuple(other[: place + 1]): other[place]
                for other in logs
                if other[:place] == label[:place]
            }
            share *= math.exp(label[place]) / sum(map(math.exp, rivals.values()))
        found.append(share)
    return found


def letter_id(stack, letter: str) -> int:
    given = {"model": "demo", "prompt": letter, "add_special_tokens": False}
    (found,) = PLAIN.post(f"{stack.url}/tokenize", json=given).json()["tokens"]
    return found


def test_probabilities_are_the_models_own(stack, client):
    decision = client.decisions.create(model="demo", input=INPUT, questions=QUESTIONS)
    assert [one.type for one in decision.answers] == ["predicate", "choice", "score", "choice"]
    assert [one.name for one in decision.answers] == ["angry", None, None, None]
    for question, answer in zip(QUESTIONS, decision.answers, strict=True):
        found = chances(answer)
        assert sum(found) == pytest.approx(1)
        assert found == pytest.approx(by_hand(stack, question), rel=1e-3, abs=1e-6)
    _, choice, score, _ = decision.answers
    assert choice.choice == max(choice.probabilities, key=lambda one: one.probability).value
    assert [one.value for one in choice.probabilities] == ["delivery", True, "true"]
    assert score.score == pytest.approx(sum(n * each for n, each in enumerate(chances(score))))
    assert [one.value for one in score.probabilities] == [*range(10)]


def test_the_same_question_has_the_same_answer_whatever_runs_beside_it(client):
    def decide(questions):
        return client.decisions.create(model="demo", input=INPUT, questions=questions)

    alone = [decide([one]).answers[0] for one in QUESTIONS]
    with ThreadPoolExecutor(6) as pool:
        together = [*pool.map(decide, [QUESTIONS] * 6)]
    for decision in together:
        for before, now in zip(alone, decision.answers, strict=True):
            assert chances(now) == pytest.approx(chances(before), rel=1e-5)
    usage = together[0].usage
    assert usage.output_tokens == len(QUESTIONS) + 3  # the two letters of 23 labels
    assert usage.input_tokens_details.cached_tokens > usage.input_tokens / 4


def test_as_many_choices_as_there_can_be(client):
    question = {"type": "choice", "instructions": "Which one?", "choices": LETTERS}
    decision = client.decisions.create(model="demo", input="one", questions=[question])
    found = [one.probability for one in decision.answers[0].probabilities]
    assert len(found) == 255
    assert sum(found) == pytest.approx(1)
    assert min(found) > 0


def test_the_sdks_own_runner_comes_to_an_end(client):
    done, log = [], []
    runner = DecisionsToolRunner(
        observe=lambda: f"Done so far: {done}",
        candidates=lambda seen: [
            *({"id": one, "description": one, "execute": lambda one=one: done.append(one)}
              for one in ("open the door", "go in") if one not in done),
            {"id": "end", "description": "nothing is left to do", "done": True},
        ],
        verify=lambda seen: log.append(seen) or len(done) == 2,
    )  # fmt: skip
    with pytest.raises(DecisionsToolRunnerError) as caught:
        runner.run(client, {"model": "demo", "input": "Go home."}, max_steps=1)
    assert caught.value.reason == "step_limit"
    result = runner.run(client, {"model": "demo", "input": "Go home."}, max_steps=20)
    assert result["status"] == "verified"
    assert sorted(done) == ["go in", "open the door"]
