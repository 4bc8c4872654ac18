"""/v1/decisions in a real tritonserver, from OpenAI's SDK, against log-probabilities of prompts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from openai.lib.decisions_tool_runner import DecisionsToolRunner, DecisionsToolRunnerError

from tests.fixtures.decisions import by_hand, chances

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


def test_probabilities_are_the_models_own(stack, client):
    decision = client.decisions.create(model="demo", input=INPUT, questions=QUESTIONS)
    assert [one.type for one in decision.answers] == ["predicate", "choice", "score", "choice"]
    assert [one.name for one in decision.answers] == ["angry", None, None, None]
    for question, answer in zip(QUESTIONS, decision.answers, strict=True):
        found = chances(answer)
        assert sum(found) == pytest.approx(1)
        assert found == pytest.approx(
            by_hand(stack.url, "demo", INPUT, question), rel=1e-3, abs=1e-6
        )
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
