"""Checker: answers are checked in the sandbox, one of each caller at a time."""

from __future__ import annotations

import asyncio

import pytest

from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidSchema
from proxy.domain.output import FinishReason
from proxy.domain.sandbox import TooCostly
from proxy.language.structured.checker import Checker
from proxy.language.structured.checks import TextCheck

CHECK = TextCheck(constraint=Constraint(GuideKind.JSON_SCHEMA, '{"type": "null"}', "guided_json"))


def answer(text: str, **fields) -> Answer:
    return Answer(text=text, reason=FinishReason.STOP, **fields)


class Counting:
    """A sandbox that knows how many calls of each caller it has at once."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.most = 0
        self.answers: list[Answer] = []

    async def run(self, caller, function, *args):
        self.now[caller] = self.now.get(caller, 0) + 1
        self.most = max(self.most, *self.now.values())
        self.answers += args
        await asyncio.sleep(0)
        self.now[caller] -= 1
        return function(*args)


def test_the_choices_of_a_caller_wait_for_each_other():
    sandbox = Counting()
    checker = Checker(sandbox)

    async def all_checked() -> list[str | None]:
        texts = ["null", "1"] * 64
        return await asyncio.gather(
            *(checker.violation(CHECK, answer(text), f"c{at % 2}") for at, text in enumerate(texts))
        )

    found = asyncio.run(all_checked())
    assert [one is None for one in found] == [True, False] * 64
    assert sandbox.most == 1


def test_only_the_checked_parts_of_an_answer_go_to_the_sandbox():
    sandbox = Counting()
    full = answer("null", reasoning="long", token_ids=(1, 2))
    asyncio.run(Checker(sandbox).violation(CHECK, full, ""))
    assert sandbox.answers == [answer("null")]


class Refusing:
    async def run(self, caller, function, *args):
        raise TooCostly("it takes more than 2 s or 512 MB to check")


def test_a_check_that_takes_too_long_names_the_callers_field():
    with pytest.raises(InvalidSchema, match="more than 2 s") as caught:
        asyncio.run(Checker(Refusing()).violation(CHECK, answer("null"), ""))
    assert caught.value.param == "guided_json"
