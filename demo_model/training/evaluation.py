"""Measures the model on prompts whose words and numbers are not in the training text."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demo_model.training.chat import CALL_CLOSE, CALL_OPEN, Conversation
from demo_model.training.copying import copying
from demo_model.training.corpus import Writer
from demo_model.training.extraction import extraction
from demo_model.training.lexicon import Lexicon, Split
from demo_model.training.manners import chat, manner
from demo_model.training.speaker import Speaker
from demo_model.training.toolchat import (
    after_result,
    no_call,
    one_call,
    two_calls,
    unseen_call,
)

CALL = re.compile(f"{re.escape(CALL_OPEN)}(.*?){re.escape(CALL_CLOSE)}", re.DOTALL)
Judge = Callable[[str, str], bool]  # wanted answer, given answer


def calls(answer: str) -> list[dict[str, Any]] | None:
    """The calls in an answer; None where one is not JSON."""
    try:
        return [json.loads(body) for body in CALL.findall(answer)]
    except json.JSONDecodeError:
        return None


def same_tool(wanted: str, given: str) -> bool:
    found = calls(given) or []
    return [call.get("name") for call in found] == [call["name"] for call in calls(wanted) or []]


def same_calls(wanted: str, given: str) -> bool:
    """Whether tools, arguments and JSON types are equal."""
    return json.dumps(calls(wanted)) == json.dumps(calls(given))


def silent(_: str, given: str) -> bool:
    return CALL_OPEN not in given


def same_fields(wanted: str, given: str) -> bool:
    try:
        return json.dumps(json.loads(given), sort_keys=True) == json.dumps(
            json.loads(wanted), sort_keys=True
        )
    except json.JSONDecodeError:
        return False


def same_text(wanted: str, given: str) -> bool:
    return wanted == given


@dataclass(frozen=True, slots=True)
class Skill:
    """A kind of prompt and its figures: name -> judge and goal, a share."""

    writer: Writer
    figures: dict[str, tuple[Judge, float | None]]


SKILLS: tuple[Skill, ...] = (
    Skill(one_call, {"right tool": (same_tool, 0.95), "arguments exact": (same_calls, 0.9)}),
    Skill(
        unseen_call,
        {"unseen: right tool": (same_tool, None), "unseen: arguments exact": (same_calls, 0.8)},
    ),
    Skill(two_calls, {"both calls right": (same_calls, 0.85)}),
    Skill(no_call, {"no false call": (silent, 0.95), "no call: answer exact": (same_text, None)}),
    Skill(extraction, {"JSON fields exact": (same_fields, 0.9)}),
    Skill(after_result, {"sentence after a result": (same_text, None)}),
    Skill(chat, {"chat and project answers": (same_text, None)}),
    Skill(manner, {"system prompt obeyed": (same_text, None)}),
    Skill(copying, {"repeat and look up": (same_text, None)}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    right: int
    asked: int
    goal: float | None

    @property
    def share(self) -> float:
        return self.right / self.asked

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"{self.goal:.0%}"
        return f"| {self.name} | {self.share:.1%} | {goal} | {self.asked} |"


@dataclass(frozen=True, slots=True)
class Miss:
    prompt: str
    wanted: str
    given: str


def held_out(writer: Writer, count: int, seed: int) -> list[Conversation]:
    lexicon = Lexicon(random.Random(seed), Split.HELD_OUT)
    return [writer(lexicon) for _ in range(count)]


def evaluate(speaker: Speaker, count: int, *, seed: int = 7) -> tuple[list[Figure], list[Miss]]:
    """The figures on `count` prompts per skill, and every wrong answer."""
    figures, misses = [], []
    for skill in SKILLS:
        asked = held_out(skill.writer, count, seed)
        given = speaker.answers(asked)
        pairs = [(one.answer, answer) for one, answer in zip(asked, given, strict=True)]
        for name, (judge, goal) in skill.figures.items():
            right = sum(judge(*pair) for pair in pairs)
            figures.append(Figure(name=name, right=right, asked=count, goal=goal))
        misses += [
            Miss(speaker.template.prompt(one), wanted, answer)
            for one, (wanted, answer) in zip(asked, pairs, strict=True)
            if wanted != answer
        ]
    return figures, misses


def table(figures: list[Figure]) -> str:
    head = "| skill | reached | goal | prompts |\n|---|---|---|---|\n"
    return head + "\n".join(map(str, figures)) + "\n"
