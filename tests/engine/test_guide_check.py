"""The tokenizer's guide check: what cannot be used is refused, in bounded time, with the reason."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from build_engines.triton_models import TEMPLATES
from guide_check.check import MB, PENDING, PENDING_AT_MOST, GuideCheck
from guide_check.sandbox_child import CLIENTS_AT_MOST
from guide_check.trial_queue import NICE, SHARES_S
from refusal import Refusal
from tests.fixtures.stack import HANG_S, eventually

TIMEOUT_S = 1.3  # of CPU time; above the share of the second slot
LATE = f"longer than {TIMEOUT_S:g} s"
SLOW = json.dumps(  # it counts to 80 through 160 optional properties, for some seconds
    {
        "type": "object",
        "properties": {f"p{i}": {"type": "integer"} for i in range(160)},
        "minProperties": 80,
    }
)
SLOW_TO_FOLLOW = 'root ::= [a-z]{60} s\ns ::= s s | [a-z] | ""'

ARITHMETIC = """root ::= sum
sum ::= product (("+" | "-") product)*
product ::= value (("*" | "/") value)*
value ::= [0-9]+ | "(" sum ")"
"""


def slow_guide(number: int) -> str:
    return json.dumps({**json.loads(SLOW), "title": f"slow {number}"})


@pytest.fixture(scope="module")
def guide_check(vocabulary):
    check = GuideCheck(
        vocabulary.info_file,
        timeout_s=TIMEOUT_S,
        compile_s=TIMEOUT_S,
        memory_bytes=250 * MB,
        text_bytes=2_000_000,
    )
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
        ("regex", "(a{1,5000}b){1,50}"),
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


def test_a_guide_that_takes_too_long_is_refused_in_time_and_the_next_one_is_served(guide_check):
    guide_check.check("regex", "warm")
    assert LATE in refusal(guide_check, "json_schema", SLOW).message
    assert not forks(guide_check)
    with pytest.raises(Refusal, match=LATE):  # without another try
        guide_check.check("json_schema", SLOW, patience_s=0)
    guide_check.check("regex", "next")


def test_where_all_requests_wait_for_a_compile_it_has_a_shorter_limit_than_the_trial(vocabulary):
    check = GuideCheck(
        vocabulary.info_file, timeout_s=HANG_S, compile_s=0.05, memory_bytes=200 * MB
    )
    try:
        assert "longer than 0.05 s to compile" in refusal(check, "json_schema", SLOW).message
        assert "too ambiguous" in refusal(check, "ebnf_grammar", SLOW_TO_FOLLOW).message
        check.check("json_schema", '{"type": "object"}')
    finally:
        check.close()


def pending(check: GuideCheck, text: str, patience_s: float) -> bool:
    try:
        check.check("json_schema", text, patience_s=patience_s)
    except Refusal as refused:
        return refused.code == PENDING
    return False


def test_who_asks_again_waits_neither_for_a_slow_guide_nor_behind_it(guide_check):
    guide_check.check("regex", "warm")
    slow, other = slow_guide(81), '{"type": "object", "title": "other"}'
    assert pending(guide_check, slow, patience_s=0.1)
    assert pending(guide_check, slow, patience_s=60), "nobody waits for it a second time"
    guide_check.check("regex", "warm", patience_s=0)
    eventually(lambda: not pending(guide_check, other, patience_s=0.1), 60, "its turn has come")
    assert LATE in refusal(guide_check, "json_schema", slow).message


def forks(check: GuideCheck) -> list[psutil.Process]:
    return psutil.Process(check.sandbox.pid).children()


def test_a_slow_guide_that_nobody_asks_for_any_more_ends_by_itself(guide_check):
    guide_check.check("regex", "warm")
    assert pending(guide_check, slow_guide(82), patience_s=0.05)
    eventually(lambda: forks(guide_check), 60, "it has begun")
    eventually(lambda: not forks(guide_check), 90, "it has ended")
    guide_check.check("regex", "next")


def test_a_trial_has_a_low_priority_once_it_has_used_the_first_share_and_not_before(guide_check):
    guide_check.check("regex", "warm")
    usual = psutil.Process(guide_check.sandbox.pid).nice()
    assert pending(guide_check, slow_guide(83), patience_s=0)
    eventually(lambda: forks(guide_check), 60, "it has begun")
    [fork] = forks(guide_check)
    eventually(lambda: fork.nice() != usual, 60, "it has used its share")
    used = fork.cpu_times()
    assert fork.nice() == min(19, usual + NICE)
    assert used.user + used.system >= SHARES_S[0]
    guide_check.close()


def test_quick_guides_overtake_any_number_of_slow_ones(guide_check):
    """By order, not by a clock: no slow guide has its verdict when the quick ones have theirs."""
    guide_check.check("regex", "warm")
    slow = [slow_guide(number) for number in range(8)]
    assert all(pending(guide_check, one, patience_s=0) for one in slow)
    for count in range(3):
        guide_check.check("json_schema", json.dumps({"type": "object", "title": str(count)}))
    assert all(pending(guide_check, one, patience_s=0) for one in slow)
    assert len(forks(guide_check)) <= 2
    guide_check.close()


def test_one_that_takes_longer_is_served_while_slow_ones_keep_coming(guide_check):
    guide_check.check("regex", "warm")
    names = {f"p{i}": {"type": "integer"} for i in range(60)}  # twice the first share
    medium = json.dumps({"type": "object", "properties": names, "minProperties": 10})
    assert pending(guide_check, medium, patience_s=0)
    given = 0

    def is_served() -> bool:
        nonlocal given
        given += 1
        pending(guide_check, slow_guide(1000 + given), patience_s=0.05)
        return not pending(guide_check, medium, patience_s=0)

    eventually(is_served, 120, "it has its verdict")
    guide_check.close()


def test_when_too_many_are_under_way_the_next_one_is_sent_again_later(guide_check):
    guide_check.check("regex", "warm")
    assert all(pending(guide_check, slow_guide(n), 0) for n in range(1, PENDING_AT_MOST + 1))
    assert pending(guide_check, '{"title": "one more"}', patience_s=0.1)
    guide_check.close()
    guide_check.check("json_schema", '{"title": "one more"}')


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", "((a{0,500}){0,500}){0,500}"),
        ("regex", "(a{1,5000}){1,5000}"),
        ("ebnf_grammar", 'root ::= s\ns ::= s s | "a" | ""'),
        ("ebnf_grammar", 'root ::= s\ns ::= s s s | [a-z] | ""'),
        ("ebnf_grammar", SLOW_TO_FOLLOW),
        ("ebnf_grammar", 'root ::= "x" s | [0-9]{1,900}\ns ::= s s | [a-z] | ""'),
    ],
)
def test_a_guide_that_compiles_quickly_and_is_slow_to_follow_is_refused(guide_check, kind, text):
    message = refusal(guide_check, kind, text).message
    assert "too ambiguous" in message or LATE in message


def test_large_and_recursive_guides_are_not_too_ambiguous(guide_check):
    node = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/node"}}, {"type": "string"}]}
    names = {f"p{i}": {"$ref": "#/$defs/node"} for i in range(150)}
    schema = {"$defs": {"node": node}, "type": "object", "properties": names}
    guide_check.check("json_schema", json.dumps(schema))
    guide_check.check("json_schema", json.dumps({**schema, "required": list(names)}))
    guide_check.check("ebnf_grammar", ARITHMETIC)
    guide_check.check("regex", r"(\w+ )*\w+\.")


def test_a_guide_that_takes_too_much_memory_is_refused(vocabulary):
    check = GuideCheck(
        vocabulary.info_file,
        timeout_s=TIMEOUT_S,
        compile_s=TIMEOUT_S,
        memory_bytes=64 * MB,
        text_bytes=2_000_000,
    )
    schema = '{"type": "integer"}'
    for _ in range(15):
        schema = f'{{"anyOf": [{schema}, {schema}]}}'
    try:
        assert "more than 64 MB" in refusal(check, "json_schema", schema).message
        check.check("regex", "after")
    finally:
        check.close()


def test_a_child_that_was_killed_is_replaced(guide_check):
    guide_check.check("regex", "before")
    before = guide_check.sandbox.pid
    os.kill(before, signal.SIGKILL)
    guide_check.check("regex", "after the kill")
    assert guide_check.sandbox.pid != before


@pytest.fixture
def instances(vocabulary):
    """GuideChecks as the instances of a tokenizer have them."""
    made = [
        GuideCheck(vocabulary.info_file, timeout_s=60, compile_s=60, memory_bytes=200 * MB)
        for _ in range(3)
    ]
    yield made
    for one in (*made, *made):  # at the second time the child has ended, and is reaped
        one.close()


NUMBERS = itertools.count()


def assert_share_a_child(instances: list[GuideCheck]) -> int:
    """Each also has its own verdicts."""
    for one in instances:
        one.check("regex", f"new{next(NUMBERS)}")
        assert "not JSON" in refusal(one, "json_schema", "{").message
    [child] = {one.sandbox.pid for one in instances}
    assert child is not None
    return child


def test_instances_share_a_child_which_ends_with_the_last_one(instances):
    for one in instances:
        one.start()
    for one in instances:
        one.wait_until_started()
    child = psutil.Process(assert_share_a_child(instances))
    slow = [slow_guide(90 + number) for number in range(len(instances))]
    assert all(pending(one, text, 0) for one, text in zip(instances, slow, strict=True))
    for place, one in enumerate(instances):
        assert child.is_running()
        one.check("json_schema", json.dumps({"title": f"still here {place}"}))
        one.close()
    child.wait(timeout=HANG_S)


@pytest.mark.parametrize("guides", [250, 700])
def test_an_instance_that_stops_reading_holds_up_no_other_and_costs_bounded_memory(
    instances, guides
):
    """Each result has 1 kB. The connection takes some 200 of them, and the child keeps 256."""
    child = psutil.Process(assert_share_a_child(instances))
    silent, *others = instances
    for number in range(guides):
        silent.sandbox.submit(number, "json_schema", json.dumps({"type": "\u00e9" * 180}))
    silent.sandbox.receive(0)  # sends them
    before = child.memory_info().rss

    def are_tried() -> bool:
        for one in others:
            one.check("regex", f"new{next(NUMBERS)}", patience_s=HANG_S)
        return not child.children()

    eventually(are_tried, HANG_S, "all are tried")
    assert child.memory_info().rss - before < MB
    silent.close()
    assert assert_share_a_child(instances) == child.pid


GUIDE = b'[1, "regex", "a"]\n'
INTRUSIONS = {
    "nothing": [],
    "half a line": [GUIDE[:9]],
    "no JSON": [b"\xff{\n"],
    "no guide": [b"1\n", GUIDE],
    "other types": [b'[{"a": 1}, [], null]\n'],
    "nested": [b"[" * 50_000 + b"\n"],
    "a large number": [b'[1, "regex", ' + b"9" * 50_000 + b"]\n"],
    "a line without an end": [b"[" * 65_536] * 200,
    "more guides than it reads results of": [b'["%s", "regex", "a"]\n' % (b"n" * 1000)] * 100,
}


@pytest.mark.parametrize("shut", [None, socket.SHUT_RD, socket.SHUT_WR])
@pytest.mark.parametrize("sent", INTRUSIONS.values(), ids=INTRUSIONS.keys())
def test_whatever_other_clients_send_the_child_serves_the_instances(instances, sent, shut):
    child = psutil.Process(assert_share_a_child(instances))
    address = address_of(instances[0])
    before = child.memory_info().rss
    clients = [connected(address) for _ in range(5)]
    for client in clients:
        with suppress(OSError):
            if shut is not None:
                client.shutdown(shut)
            for part in sent:
                client.send(part, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    assert assert_share_a_child(instances) == child.pid
    assert child.memory_info().rss - before < 60 * MB
    eventually(lambda: is_idle(child), HANG_S, "it waits for something to do")
    for client in clients:
        client.close()
    assert assert_share_a_child(instances) == child.pid


def test_more_clients_than_the_child_accepts_stop_no_instance_that_is_connected(instances):
    child = psutil.Process(assert_share_a_child(instances))
    address = address_of(instances[0])
    clients = [connected(address) for _ in range(CLIENTS_AT_MOST + 50)]
    assert assert_share_a_child(instances) == child.pid
    for client in clients:
        client.close()


def connected(address: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(address)
    return client


def address_of(check: GuideCheck) -> str:
    return check.sandbox._socket.getpeername().decode()


def is_idle(child: psutil.Process) -> bool:
    before = sum(child.cpu_times()[:2])
    time.sleep(0.5)
    return not child.children() and sum(child.cpu_times()[:2]) - before < 0.05


def test_instances_whose_child_was_killed_share_another_one(instances):
    before = assert_share_a_child(instances)
    os.kill(before, signal.SIGKILL)
    assert assert_share_a_child(instances) != before


@pytest.mark.parametrize("closed", [[0], [1], [0, 1, 2]])
def test_an_instance_may_leave_and_come_back(instances, closed):
    before = assert_share_a_child(instances)
    for _ in range(3):
        for number in closed:
            instances[number].close()
        for number in closed:
            instances[number].start()
        assert (assert_share_a_child(instances) == before) == (len(closed) < len(instances))
        before = instances[0].sandbox.pid


def test_children_of_other_limits_or_files_are_not_shared(instances, vocabulary, tmp_path):
    other = tmp_path / "guide.json"
    other.write_bytes(vocabulary.info_file.read_bytes())
    pids = {assert_share_a_child(instances)}
    for file, memory_mb in ((vocabulary.info_file, 100), (other, 200), (other, 200)):
        other.write_bytes(vocabulary.info_file.read_bytes())  # built again
        check = GuideCheck(file, timeout_s=60, compile_s=60, memory_bytes=memory_mb * MB)
        instances.append(check)
        check.check("regex", "a")
        pids.add(check.sandbox.pid)
    assert len(pids) == 4


def test_a_child_that_cannot_start_is_logged_and_only_guides_fail(tmp_path, caplog):
    check = GuideCheck(
        tmp_path / "missing.json", timeout_s=TIMEOUT_S, compile_s=TIMEOUT_S, memory_bytes=64 * MB
    )
    check.start()
    check.wait_until_started()
    assert "requests with guides will fail: the guide checker does not start" in caplog.text
    with pytest.raises(RuntimeError, match=r"missing\.json"):
        check.check("regex", "a")


def test_verdicts_are_remembered(guide_check):
    guide_check.check("regex", "remembered")
    refusal(guide_check, "regex", "(remembered")
    guide_check.close()
    guide_check.check("regex", "remembered")
    refusal(guide_check, "regex", "(remembered")
    assert guide_check.sandbox.pid is None


def test_the_child_ends_with_its_parent_even_during_a_compile(vocabulary):
    code = (
        "import pathlib\n"
        "from guide_check.sandbox import Sandbox\n"
        f"info = pathlib.Path({str(vocabulary.info_file)!r})\n"
        "sandbox = Sandbox(info, memory_bytes=200_000_000, timeout_s=3600.0, compile_s=3600.0)\n"
        "sandbox.start()\n"
        "sandbox.wait_until_started()\n"
        "print(sandbox.pid, flush=True)\n"
        f"sandbox.submit(1, 'json_schema', {SLOW!r})\n"
        "sandbox.receive(3600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(TEMPLATES, "tokenizer", "1"),
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        child = psutil.Process(int(parent.stdout.readline()))
        eventually(child.children, 60, "it compiles")
        parent.kill()
    child.wait(timeout=HANG_S)


def test_the_engine_compiles_what_the_tokenizer_has_tried():
    ours, theirs = (Path(TEMPLATES, role, "1", "grammars") for role in ("tokenizer", "engine"))
    assert ours.is_symlink()
    assert ours.resolve() == theirs.resolve()
