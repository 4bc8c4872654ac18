"""Decisions: questions x the input that each of them is sent with, and options x letters."""

from __future__ import annotations

from typing import Any

from tests.long.hostile.attack import Attack, Target
from tests.long.hostile.caller import Body, burst, post

PATH = "/v1/decisions"
REFUSED = frozenset({400, 413, 422})
ASK = {"type": "predicate", "instructions": "It is so."}
MANY = [{"value": str(number)} for number in range(255)]
CHOOSE = {"type": "choice", "instructions": "Which?", "choices": MANY}


def asked(questions: list[dict[str, Any]], given: Any = "a") -> Body:
    return lambda target: {"model": model(target), "input": given, "questions": questions}


def model(target: Target) -> str:
    return target.steady


DEEP: dict[str, Any] = {}
for _ in range(400):
    DEEP = {"a": DEEP}
TURNS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
ATTACKS = [
    Attack("decisions: 400 questions", post(asked([ASK] * 400), PATH), wall_s=120),
    Attack("decisions: 16 questions of 255 choices", post(asked([CHOOSE] * 16), PATH), wall_s=120),
    Attack("decisions: 400 questions of 255 choices", post(asked([CHOOSE] * 400), PATH),
        answers=REFUSED),
    Attack("decisions: 400 questions about a long input", post(asked([ASK] * 400, "é" * 800_000),
        PATH), answers=REFUSED),
    Attack("decisions: 16 questions about 1,000 turns", post(asked([ASK] * 16, TURNS * 500), PATH),
        wall_s=120),
    Attack("decisions: 60 questions about 1,000 turns", post(asked([ASK] * 60, TURNS * 500),
        PATH), answers=REFUSED),
    Attack("decisions: JSON of 400 levels", post(asked([{**ASK, "instructions":
        [{"type": "input_json", "data": DEEP}]}]), PATH), answers=REFUSED),
    Attack("decisions: 400 questions with JSON of 9,000 values", post(asked([{**ASK,
        "instructions": [{"type": "input_json", "data": {"a": [0] * 450}}]}] * 400), PATH),
        wall_s=120),
    Attack("decisions: 20 requests of 100 questions at once", burst(asked([ASK] * 100), PATH,
        count=20), wall_s=120),
]  # fmt: skip
