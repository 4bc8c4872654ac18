"""Last-Event-ID over HTTP: streams of requests with a key continue where the client was cut off."""

from __future__ import annotations

import pytest

from tests.api.conftest import Serve
from tests.api.formats import error_of
from tests.api.idempotency.test_idempotency import CHAT, STREAM, chat
from tests.doubles.engine import ScriptedEngine, deltas


def test_last_event_id_continues_after_that_event(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc" * 9)))
    body = {**STREAM, "max_tokens": 50}
    whole = chat(client, body).text
    events = whole.split("\n\n")[:-1]
    for after in range(len(events) + 1):
        rest = chat(client, body, Last_Event_ID=str(after))
        assert rest.text == "".join(f"{each}\n\n" for each in events[after:])
    assert len(engine.requests) == 1


@pytest.mark.parametrize(
    ("event_id", "status", "code"),
    [
        ("x", 400, "invalid_parameter"),
        ("-1", 400, "invalid_parameter"),
        ("9" * 16, 400, "invalid_parameter"),
        ("99", 400, "invalid_parameter"),
    ],
)
def test_a_wrong_last_event_id_is_refused_by_name(keyed: Serve, event_id, status, code):
    client = keyed(ScriptedEngine(deltas("abc")))
    chat(client, STREAM)
    refused = chat(client, STREAM, Last_Event_ID=event_id)
    assert (refused.status_code, error_of(refused)["code"]) == (status, code)
    assert error_of(refused)["param"] == "Last-Event-ID"


def test_last_event_id_of_an_answer_without_events_is_refused(keyed: Serve):
    client = keyed(ScriptedEngine(deltas("abc")))
    chat(client)
    assert chat(client, Last_Event_ID="1").status_code == 400


def test_last_event_id_without_a_key_is_refused(keyed: Serve):
    client = keyed(ScriptedEngine(deltas("abc")))
    refused = client.post(CHAT, json=STREAM, headers={"Last-Event-ID": "1"})
    assert refused.status_code == 400


def test_a_stream_that_is_not_kept_is_not_spliced_with_another_one(keyed: Serve):
    client = keyed(engine := ScriptedEngine(deltas("abc")))
    refused = chat(client, STREAM, Last_Event_ID="3")
    assert (refused.status_code, error_of(refused)["code"]) == (410, "stream_not_kept")
    assert not engine.requests
    assert chat(client, STREAM).status_code == 200
