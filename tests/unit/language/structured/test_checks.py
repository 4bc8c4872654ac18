"""Checks of finished answers, and that they run in the sandbox, one of each caller at a time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest, RequestError
from proxy.domain.output import FinishReason
from proxy.domain.sandbox import TooCostly
from proxy.domain.tools import ToolCall
from proxy.language.structured.checks import (
    Checker,
    TextCheck,
    check_of,
    engine_constraint,
    unenforced_keywords,
)
from proxy.language.structured.constraint_request import (
    ConstraintRequest,
    Form,
    GuideLimits,
    constraint_of,
)
from tests.doubles.engine import CARD

WITHOUT = replace(CARD, capabilities=CARD.capabilities - {"constraint"})


def schema(value: object, *, is_strict: bool = False) -> Constraint:
    request = ConstraintRequest(
        field="guided_json", form=Form.SCHEMA, value=value, is_strict=is_strict
    )
    return constraint_of(request, GuideLimits())


def regex(pattern: str) -> Constraint:
    request = ConstraintRequest(field="guided_regex", form=Form.REGEX, value=pattern)
    return constraint_of(request, GuideLimits())


def wrong(wanted: Constraint, text: str) -> str | None:
    check = check_of(wanted, WITHOUT)
    return check.violation(Answer(text=text, reason=FinishReason.STOP))


def test_each_violation_has_its_path():
    inner = {"type": "object", "properties": {"n": {"maximum": 3}}, "required": ["n"]}
    wanted = schema({"type": "object", "properties": {"list": {"items": inner}}})
    said = wrong(wanted, '{"list": [{"n": 1}, {"n": 5}, {}]}')
    assert "at $.list[1].n: 5 is greater than the maximum of 3" in said
    assert 'at $.list[2]: "n" is a required property' in said
    assert wrong(wanted, '{"list": []}') is None


@pytest.mark.parametrize(
    "text", ["", "```json\n1\n```", "1 2", "NaN", "[1,]", "378E480", r'"\ud800"']
)
def test_invalid_json_does_not_conform(text):
    assert wrong(schema({}), text).startswith("it is not JSON")


@pytest.mark.parametrize(
    ("given", "good", "bad"),
    [
        ({"enum": [2**64 + 1]}, "18446744073709551617", "18446744073709551616"),
        ({"multipleOf": 5}, "100000000000000000005", "100000000000000000006"),
        ({"maximum": 10**20}, "100000000000000000000", "100000000000000000001"),
        ({"uniqueItems": True}, f"[{2**64}, {2**64 + 1}]", f"[{2**64}, {2**64}]"),
    ],
)
def test_long_integers_are_compared_exactly(given, good, bad):
    assert wrong(schema(given), good) is None
    assert wrong(schema(given), bad)


def test_a_regular_expression_must_match_in_full():
    assert wrong(regex("a|bc"), "bc") is None
    for text in ("abc", "ab", "a\n", ""):
        assert wrong(regex("a|bc"), text)


def test_a_regular_expression_that_cannot_be_checked_is_the_callers_mistake():
    with pytest.raises(InvalidRequest) as caught:
        check_of(regex("(a"), WITHOUT)
    assert caught.value.param == "guided_regex"


def test_calls_instead_of_text_and_incomplete_answers_are_not_checked():
    check = check_of(schema({"type": "null"}), WITHOUT)
    call = ToolCall(id="c", name="f", arguments="{}")
    assert check.violation(Answer(text=" ", reason=FinishReason.TOOL_CALLS, calls=(call,))) is None
    assert check.violation(Answer(text="{", reason=FinishReason.LENGTH)) is None


def test_a_recursive_schema_and_a_deep_answer_cost_little():
    """A list of all violations would have 2 ** 60 entries."""
    array = {"type": "array", "items": {"$ref": "#"}}
    wanted = schema({"anyOf": [array, {**array, "maxItems": 1}]})
    start = time.process_time()
    assert "does not conform" in wrong(wanted, "[" * 60 + "1" + "]" * 60)
    assert time.process_time() - start < 1


def test_what_the_engine_and_the_check_enforce():
    unique = {"type": "array", "uniqueItems": True}
    for wanted, is_guided, is_checked, names in [
        (schema({"type": "null"}, is_strict=True), True, False, ()),
        (schema(unique), True, False, ("uniqueItems",)),
        (schema(unique, is_strict=True), True, True, ()),
    ]:
        assert (engine_constraint(wanted, CARD) is not None) is is_guided
        assert (check_of(wanted, CARD) is not None) is is_checked
        assert unenforced_keywords(wanted, CARD) == names
        assert engine_constraint(wanted, WITHOUT) is None
        assert check_of(wanted, WITHOUT) is not None
        assert unenforced_keywords(wanted, WITHOUT) == ()


# in a sandbox

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
    with pytest.raises(RequestError, match="more than 2 s") as caught:
        asyncio.run(Checker(Refusing()).violation(CHECK, answer("null"), ""))
    assert caught.value.param == "guided_json"
