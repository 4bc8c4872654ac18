"""gRPC's framing of messages: the length that is allowed, and what came before a bad one."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from proxy.triton.http2.messages import BadMessage, MessageReader, framed


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
