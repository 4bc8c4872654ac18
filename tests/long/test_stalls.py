"""A tokenizer or detokenizer that stands still, and runs on: Triton's Python backend then hands its
answers to other requests. No caller gets another one's text.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.fixtures.stack import HANG_S, Stack, halted

STREAMS = 18
LATE_STREAMS = 6  # that begin while the process stands still
TOKENS = 500
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 60, "maxLength": 90}},
    "required": ["name"],
    "additionalProperties": False,
}


@dataclass
class Answer:
    """tokens: with log-probabilities, the bytes of each token and of its alternatives, as JSON."""

    text: str = ""
    tokens: str = ""
    error: str | None = None

    def is_part_of(self, due: Answer) -> bool:
        if self.error is None:
            return (self.text, self.tokens) == (due.text, due.tokens)
        return due.text.startswith(self.text) and due.tokens.startswith(self.tokens)


@dataclass
class Stalls:
    """Streams on one stack."""

    stack: Stack
    due: list[Answer] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def learn(self) -> None:
        """Asks for each answer once, undisturbed."""
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(self._ask, range(STREAMS)))
        assert not [answer.error for answer in answers if answer.error]
        self.due = answers

    def stall(self, part: str, random: Random) -> None:
        """Stops the processes for 0.8 to 3 s. Returns when all streams have ended."""
        with ThreadPoolExecutor(STREAMS) as pool:
            early = STREAMS - LATE_STREAMS
            running = [pool.submit(self._ask, number) for number in range(early)]
            time.sleep(random.uniform(0.05, 0.6))
            with halted(self.stack.descendants(part)):
                running += [pool.submit(self._ask, number) for number in range(early, STREAMS)]
                time.sleep(random.uniform(0.8, 3.0))
            for number, answer in enumerate(running):
                self._compare(number, answer.result())
        self.stack.wait_ready()

    def _compare(self, number: int, answer: Answer) -> None:
        due = self.due[number]
        self.counts["answers"] += 1
        if answer.error is not None:
            self.counts["errors"] += 1
        if not answer.is_part_of(due):
            pairs = enumerate(zip(answer.text, due.text, strict=False))
            at = next((at for at, (one, other) in pairs if one != other), 0)
            part = slice(max(0, at - 20), at + 40)
            self.differences.append(
                f"{number}: {answer.text[part]!r} in place of {due.text[part]!r}, "
                f"{len(answer.tokens)} and {len(due.tokens)} characters of tokens"
            )

    def _ask(self, number: int) -> Answer:
        answer = Answer()
        try:
            for event in self._events(number):
                if "error" in event:
                    answer.error = event["error"]["code"]
                for choice in event.get("choices", ()):
                    answer.text += choice["delta"].get("content") or ""
                    for token in (choice.get("logprobs") or {}).get("content") or ():
                        found = [token["bytes"], [top["bytes"] for top in token["top_logprobs"]]]
                        answer.tokens += json.dumps(found)
        except httpx.HTTPError as error:
            answer.error = repr(error)
        return answer

    def _events(self, number: int) -> Iterator[dict[str, Any]]:
        body: dict[str, Any] = {
            "model": "demo",
            "messages": [{"role": "user", "content": f"Tell me about number {number}."}],
            "temperature": 0.9,
            "seed": 9 + number,
            "stream": True,
            "cache_salt": uuid4().hex,  # a cached prefix would continue with other rounding
        }
        if number % 3 == 0:
            form = {"name": "it", "schema": SCHEMA, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        else:
            body |= {"ignore_eos": True, "max_tokens": TOKENS}
        if number % 3 == 1:
            body |= {"logprobs": True, "top_logprobs": 2}
        path = f"{self.stack.url}/v1/chat/completions"
        with httpx.stream("POST", path, json=body, timeout=HANG_S) as response:
            if response.status_code != 200:
                yield json.loads(response.read())
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize("part", ["_tokenizer/1/model.py", "_detokenizer/1/model.py"])
def test_no_answer_has_text_of_another_stream(victim, part):
    stalls, random = Stalls(victim), Random(part)
    stalls.learn()
    for _ in range(2):
        stalls.stall(part, random)
    assert not stalls.differences
    assert stalls.counts["answers"] > stalls.counts["errors"]
