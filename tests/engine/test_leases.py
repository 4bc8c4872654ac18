"""Leases and deadlines in the engine's shell: what ends streams that nobody stops."""

from __future__ import annotations

import json

import pytest

from leases import Leases
from response_writer import ResponseWriter
from tests.doubles.response_sender import Sender
from tests.fixtures.stack import HANG_S, eventually


@pytest.fixture
def held():
    return Leases()


@pytest.fixture
def writer(held):
    made = ResponseWriter(held, responses_per_s=50, hold_s=0.2)
    yield made
    made.close()


def test_streams_of_a_lease_whose_client_is_gone_are_abandoned_and_no_others(held, writer):
    client, other = Sender(), Sender()
    assert held.hold("a", client) is None
    assert held.hold("b", other) is None
    lost = [writer.open(Sender(), 1, "a") for _ in range(3)]
    kept = [writer.open(Sender(), 1, lease) for lease in ("b", "", "unknown")]
    client.is_gone = True
    eventually(lambda: all(stream.is_abandoned() for stream in lost), 10, "they are abandoned")
    assert not any(stream.is_abandoned() for stream in kept)
    assert client.is_over.is_set(), "Triton has the call back"
    assert not other.sent


def test_a_lease_is_refused_without_a_name_twice_and_beyond_the_most():
    held = Leases(most=2)
    assert "request id" in held.hold("", Sender())
    assert held.hold("a", Sender()) is None
    assert "is open" in held.hold("a", Sender())
    assert held.hold("b", Sender()) is None
    assert "2 leases are open" in held.hold("c", Sender())


def test_a_stream_ends_at_its_deadline_with_an_error_that_says_so(writer):
    sender, other = Sender(), Sender()
    late, in_time = writer.open(sender, 1), writer.open(other, 1)
    late.end_after(0.01)
    in_time.end_after(600)
    eventually(late.is_abandoned, 10, "it is late")
    assert not in_time.is_abandoned()
    late.cancelled()  # as a runtime does with what is abandoned
    assert sender.is_over.wait(HANG_S)
    assert json.loads(str(sender.sent[0][2]))["code"] == "deadline_exceeded"


def test_many_leases_are_checked_in_turns():
    held = Leases(checks=2)
    senders = {str(number): Sender() for number in range(5)}
    for name, sender in senders.items():
        held.hold(name, sender)
        sender.is_gone = True
    assert [held.check() for _ in range(4)] == [{"0", "1"}, {"2", "3"}, {"4"}, set()]
