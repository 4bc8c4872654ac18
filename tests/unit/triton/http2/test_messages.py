"""gRPC's framing of messages: however they are cut, and the length that is allowed."""

from __future__ import annotations

import pytest
from grpc import StatusCode
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.triton.http2.messages import BadMessage, MessageReader, framed
from tests.strategies import cuts


@settings(derandomize=True)
@given(st.lists(st.binary(max_size=50)), st.data())
def test_messages_are_the_same_however_the_bytes_are_cut(messages, data):
    whole = b"".join(map(framed, messages))
    reader = MessageReader(max_bytes=50)
    got = [message for piece in data.draw(cuts(whole)) for message in reader.push(piece)]
    assert got == messages
    assert not reader.is_inside


def test_a_message_that_has_begun_is_known():
    reader = MessageReader(max_bytes=50)
    assert list(reader.push(framed(b"abc")[:4])) == []
    assert reader.is_inside


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (b"\1\0\0\0\1x", StatusCode.INTERNAL, "flag 1"),
        (framed(bytes(51)), StatusCode.RESOURCE_EXHAUSTED, "51 bytes, more than the 50 allowed"),
        (framed(bytes(51))[:5], StatusCode.RESOURCE_EXHAUSTED, "51 bytes"),
    ],
)
def test_a_bad_message_is_an_error_behind_those_before_it(bad, code, words):
    reader, got = MessageReader(max_bytes=50), []
    with pytest.raises(BadMessage, match=words) as error:
        got.extend(reader.push(framed(b"a") + framed(bytes(50)) + bad))
    assert error.value.status.code is code
    assert got == [b"a", bytes(50)]
