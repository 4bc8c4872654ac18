"""The header that says how long a request waits for a row at most."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.api.http.own_headers import MOST_MS, with_patience
from proxy.domain.errors import InvalidRequest
from proxy.domain.record import RequestRecord, current_record
from proxy.domain.request import GenerationRequest, TextPrompt

REQUEST = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="hi"))


@pytest.fixture
def headers() -> Iterator[list[tuple[bytes, bytes]]]:
    given: list[tuple[bytes, bytes]] = [(b"host", b"here")]
    token = current_record.set(RequestRecord(headers=given))
    yield given
    current_record.reset(token)


def test_without_it_the_request_is_the_same_object(headers):
    assert with_patience(REQUEST) is REQUEST


@pytest.mark.parametrize(
    ("given", "seconds"), [(b"0", 0.0), (b"1500", 1.5), (b" 20 ", 0.02), (b"3600000", 3600.0)]
)
def test_milliseconds_become_seconds(headers, given, seconds):
    headers.append((b"x-queue-timeout-ms", given))
    assert with_patience(REQUEST).queue_patience_s == seconds


@pytest.mark.parametrize(
    "given",
    [b"", b"-1", b"1.5", b"1e3", b"soon", b"3600001", b"9" * 5000, b"\xb2", b"1_0", b"\xd9\xa1"],
)
def test_anything_else_is_refused_by_name(headers, given):
    headers.append((b"x-queue-timeout-ms", given))
    with pytest.raises(InvalidRequest) as caught:
        with_patience(REQUEST)
    assert caught.value.param == "x-queue-timeout-ms"
    assert str(MOST_MS) in caught.value.message
    assert len(caught.value.message) < 500


def test_two_of_them_are_refused(headers):
    headers += [(b"x-queue-timeout-ms", b"1")] * 2
    with pytest.raises(InvalidRequest, match="'1, 1'"):
        with_patience(REQUEST)
