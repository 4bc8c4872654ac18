"""The line of a request: its level, and that what callers write into it is cut, shows no key, and
stays on one line.
"""

from __future__ import annotations

import io
import json

import orjson
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.record import RequestRecord
from proxy.telemetry import logs
from proxy.telemetry.request_log import line_of

HOSTILE = "a\n2026-01-01 [info] request\r\x1b[2J\x00\x9b\u2028\u202e\ud800 b"
TEXTS = ("path", "id", "model", "tenant", "key_id", "error", "user", "safety_identifier")


def written(**fields: object) -> dict:
    """The line of a record with these fields, without those of every line."""
    line = line_of(RequestRecord(**fields))
    return {name: line[name] for name in line.keys() & fields.keys()}


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(TEXTS, st.text(max_size=2000))))
def test_whatever_callers_send_a_line_is_bounded_json_without_control_characters(fields):
    found = line_of(RequestRecord(**fields))
    assert orjson.dumps(found).decode().isprintable()
    assert all(len(orjson.dumps(each)) <= 512 * 12 for each in found.values())


def test_texts_are_cut_and_counted():
    record = RequestRecord(
        user="u" * 600, path="/" * 600, metadata={f"{n}": "v" * 600 for n in range(40)}
    )
    for number in (*range(40), 1):
        record.add_endpoint(f"h{number}:1")
    line = line_of(record)
    assert (line["user"], line["path"]) == ("u" * 512 + "…", "/" * 256 + "…")
    assert {len(each) for each in line["metadata"].values()} == {513}
    assert (len(line["metadata"]), line["endpoints"]) == (16, [f"h{n}:1" for n in range(8)])


KEYS = (
    "sk-k3x9q27bt0mz-" + "hidden-_" * 5 + "abc",
    "sk-k3x9q27bt0mz-" + "hidden_" * 3,  # a part of one
    "sk-proj-" + "hidden12" * 12,
    "sk-" + "hidden00" * 6,
    "eyJoiddenheader." + "hidden" * 9 + ".hidden-signature",
)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_in_a_text_of_a_caller_is_not_written(key):
    text = f"/v1/models/{key}/x?{key}"
    fields = {"path": text, "model": key, "user": text, "metadata": {key: text}, "endpoints": [key]}
    shown = io.BytesIO()
    logger = structlog.wrap_logger(structlog.BytesLogger(shown), logs.processors("json"))
    logger.info("request", **written(**fields))
    logger.warning("another line", request_id=key, where=text)
    assert "hidden" not in str(written(**fields))
    assert b"hidden" not in shown.getvalue()
    assert (b"sk-k3x9q27bt0mz-" in shown.getvalue()) is key.startswith("sk-k")


@pytest.mark.parametrize("text", ["sk-learn", "task-force-one", "a risk-averse-and-careful-man"])
def test_other_texts_stay(text):
    assert written(user=text) == {"user": text}


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("is_request", [True, False])
def test_no_text_of_a_caller_breaks_a_line_or_steers_a_terminal(form, is_request):
    stream = io.BytesIO() if form == "json" else io.StringIO()
    make = structlog.BytesLogger if form == "json" else structlog.PrintLogger
    logger = structlog.wrap_logger(
        make(stream), logs.processors(form), wrapper_class=logs.LeveledLogger
    )
    text = HOSTILE if is_request else HOSTILE.replace("\ud800", "")
    fields = {"path": text, "user": text, "metadata": {text: text}}
    logger.info("request", **(written(**fields) if is_request else fields))
    shown = stream.getvalue()
    line = shown.decode() if isinstance(shown, bytes) else shown
    assert line.count("\n") == 1
    colors = structlog.dev.ConsoleRenderer.get_default_level_styles().values()
    for each in (*colors, *vars(structlog.dev._ColorfulStyles).values()):
        line = line.replace(str(each), "") if form == "text" else line
    assert not {"\x1b", "\r", "\x00"} & set(line)
    assert form == "json" or line[:-1].isprintable()
    assert form == "text" or json.loads(line)["event"] == "request"
