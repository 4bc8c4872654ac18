"""The tokenizer's guide check: what cannot be used is refused, in bounded time, with the reason."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from admission import Refusal
from guide_check import MB, PENDING, GuideCheck

from build_engines.triton_models import TEMPLATES
from tests.fixtures.guide_info import DemoVocabulary
from tests.fixtures.stack import eventually

TIMEOUT_S = 2.0
SLOW = json.dumps(  # it counts to 80 through 160 optional properties, for some seconds
    {
        "type": "object",
        "properties": {f"p{i}": {"type": "integer"} for i in range(160)},
        "minProperties": 80,
    }
)


@pytest.fixture(scope="module")
def guide_check(tmp_path_factory):
    info_file = DemoVocabulary(tmp_path_factory.mktemp("guides")).info_file
    check = GuideCheck(info_file, timeout_s=TIMEOUT_S, memory_bytes=64 * MB, text_bytes=2_000_000)
    yield check
    check.close()


def refusal(check: GuideCheck, kind: str, text: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        check.check(kind, text)
    assert caught.value.code == "invalid_parameter"
    return caught.value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", ""),
        ("json_schema", '{"type": "object"}'),
        ("json_schema", "true"),
        ("regex", "(a{1,5000}){1,5000}"),
        ("regex", r"\\A\d\x41\u0041\-\_\/"),
        ("ebnf_grammar", 'root ::= root "a" | "b"'),
        ("structural_tag", '{"type": "structural_tag", "format": {"type": "any_text"}}'),
    ],
)
def test_a_usable_guide_passes(guide_check, kind, text):
    guide_check.check(kind, text)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("json_schema", "{", "it is not JSON: Expecting property name"),
        ("json_schema", "[]", "neither an object nor a boolean"),
        ("json_schema", "[" * 100_000, "nested too deeply"),
        ("json_schema", '{"type": "foo"}', 'Unsupported type "foo"'),
        ("regex", "", "it is empty"),
        ("regex", "a" * 2_000_001, "it has more than 2000000 bytes"),
        ("regex", "(?=a)b", "Lookahead is not supported"),
        ("regex", r"\Aabc", r"the escape \A is not supported; the whole answer has to match"),
        ("regex", r"a\\\Z", r"the escape \Z is not supported"),
        ("regex", r"\x{41}", r"the escape \x is not supported"),
        (
            "structural_tag",
            json.dumps(
                {
                    "type": "structural_tag",
                    "format": {
                        "type": "sequence",
                        "elements": [{"type": "regex", "pattern": r"a\Z"}],
                    },
                }
            ),
            r"the escape \Z is not supported",
        ),
        ("ebnf_grammar", 'root ::= root "a"', "no text matches it"),
        ("structural_tag", "{}", "must have a format field"),
    ],
)
def test_an_unusable_guide_is_refused_with_the_reason(guide_check, kind, text, said):
    refused = refusal(guide_check, kind, text)
    assert refused.param == "guided_decoding_guide"
    assert refused.message.startswith(f"the {kind} guide: ")
    assert said in refused.message
    assert len(refused.message) < 300


def test_an_unknown_kind_is_refused_by_name(guide_check):
    refused = refusal(guide_check, "lark", "start: A")
    assert refused.param == "guided_decoding_guide_type"
    assert refused.message.startswith("'lark' is not one of json, json_schema")


def test_a_guide_that_takes_too_long_is_refused_in_time_and_the_next_one_is_served(guide_check):
    guide_check.check("regex", "warm")
    start = time.monotonic()
    assert "longer than 2 s" in refusal(guide_check, "json_schema", SLOW).message
    assert time.monotonic() - start < TIMEOUT_S + 1
    start = time.monotonic()
    refusal(guide_check, "json_schema", SLOW)
    assert time.monotonic() - start < 1
    guide_check.check("regex", "next")


def pending(check: GuideCheck, text: str, patience_s: float) -> bool:
    try:
        check.check("json_schema", text, patience_s=patience_s)
    except Refusal as refused:
        return refused.code == PENDING
    return False


def test_who_asks_again_waits_neither_for_a_slow_guide_nor_behind_it(guide_check):
    guide_check.check("regex", "warm")
    slow, other = SLOW.replace("80}", "81}"), '{"type": "object", "title": "other"}'
    start = time.monotonic()
    assert pending(guide_check, slow, patience_s=0.1)
    assert pending(guide_check, other, patience_s=60)
    assert pending(guide_check, slow, patience_s=60)
    guide_check.check("regex", "warm", patience_s=0)
    assert time.monotonic() - start < TIMEOUT_S / 2
    eventually(lambda: not pending(guide_check, other, patience_s=0.1), 10, "its turn has come")
    assert "longer than 2 s" in refusal(guide_check, "json_schema", slow).message


def test_a_slow_guide_that_nobody_asks_for_any_more_ends_by_itself(guide_check):
    guide_check.check("regex", "warm")
    assert pending(guide_check, SLOW.replace("80}", "82}"), patience_s=0)
    child = psutil.Process(guide_check.sandbox.pid)
    assert pending(guide_check, SLOW.replace("80}", "82}"), patience_s=0)
    eventually(lambda: child.status() == psutil.STATUS_ZOMBIE, 10, "it has ended")
    guide_check.check("regex", "next")


def test_a_guide_that_compiles_quickly_and_is_slow_to_follow_is_refused(guide_check):
    message = refusal(guide_check, "regex", "((a{0,500}){0,500}){0,500}").message
    assert "too ambiguous" in message or "longer than 2 s" in message


def test_a_guide_that_takes_too_much_memory_is_refused(guide_check):
    schema = '{"type": "integer"}'
    for _ in range(15):
        schema = f'{{"anyOf": [{schema}, {schema}]}}'
    assert "more than 64 MB" in refusal(guide_check, "json_schema", schema).message
    guide_check.check("regex", "after")


def test_a_child_that_was_killed_is_replaced(guide_check):
    guide_check.check("regex", "before")
    before = guide_check.sandbox.pid
    os.kill(before, signal.SIGKILL)
    guide_check.check("regex", "after the kill")
    assert guide_check.sandbox.pid != before


def test_verdicts_are_remembered(guide_check):
    guide_check.check("regex", "remembered")
    refusal(guide_check, "regex", "(remembered")
    guide_check.close()
    guide_check.check("regex", "remembered")
    refusal(guide_check, "regex", "(remembered")
    assert guide_check.sandbox.pid is None


def test_the_child_ends_when_its_parent_closes_the_line_even_amid_a_compile(guide_check):
    guide_check.check("regex", "alive")
    child = psutil.Process(guide_check.sandbox.pid)
    guide_check.sandbox._socket.sendall(json.dumps(["json_schema", SLOW]).encode() + b"\n")
    time.sleep(0.3)
    guide_check.sandbox._socket.close()  # as the end of this process would
    guide_check.sandbox._socket = None
    child.wait(timeout=5)


def test_the_engine_compiles_what_the_tokenizer_has_tried():
    ours, theirs = (Path(TEMPLATES, role, "1", "grammars.py") for role in ("tokenizer", "engine"))
    assert ours.is_symlink()
    assert ours.resolve() == theirs.resolve()
