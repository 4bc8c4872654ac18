"""The line of a request holds what is on the list, within bounds, and stays one line."""

from __future__ import annotations

import io
import json

import orjson
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.telemetry import logs, request_log
from proxy.telemetry.line_fields import FIELDS, bounded

HOSTILE = "a\n2026-01-01 [info] request\r\x1b[2J\x00\x9b\u2028\u202e\ud800 b"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=2000) | st.binary(),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(), inner, max_size=40),
    max_leaves=60,
)


@given(st.dictionaries(st.sampled_from([*FIELDS, "prompt", "text"]), values))
def test_whatever_is_added_a_line_is_bounded_json_without_control_characters(fields):
    found = bounded(fields)
    assert found.keys() <= FIELDS.keys()
    text = orjson.dumps(found, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    assert text.isprintable()
    assert all(len(orjson.dumps(each)) <= 16 * (512 + 256) * 12 for each in found.values())


def test_unknown_fields_and_values_of_another_type_are_not_written():
    with capture_logs() as lines, request_log.RequestLine(method="GET", path="/x"):
        request_log.add(model="demo", messages="a prompt", status="200", user=["a"], ttft_ms=True)
    (line,) = lines
    assert line.keys() == {"event", "log_level", "method", "path", "model", "duration_ms"}


def test_texts_are_cut_and_counted():
    line = bounded(
        {
            "user": "u" * 600,
            "path": "/" * 600,
            "metadata": {f"{n}": "v" * 600 for n in range(40)},
            "endpoints": [f"h{n}:1" for n in range(40)],
        }
    )
    assert (line["user"], line["path"]) == ("u" * 512 + "…", "/" * 256 + "…")
    assert {len(each) for each in line["metadata"].values()} == {513}
    assert (len(line["metadata"]), len(line["endpoints"])) == (16, 8)


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
    written = io.BytesIO()
    logger = structlog.wrap_logger(structlog.BytesLogger(written), logs.processors("json"))
    logger.info("request", **bounded(fields))
    logger.warning("another line", request_id=key, where=text)
    assert "hidden" not in str(bounded(fields))
    assert b"hidden" not in written.getvalue()
    assert (b"sk-k3x9q27bt0mz-" in written.getvalue()) is key.startswith("sk-k")


@pytest.mark.parametrize("text", ["sk-learn", "task-force-one", "a risk-averse-and-careful-man"])
def test_other_texts_stay(text):
    assert bounded({"user": text}) == {"user": text}


def test_an_endpoint_is_listed_once():
    with capture_logs() as lines, request_log.RequestLine(path="/x"):
        for each in ("a:1", "b:1", "a:1"):
            request_log.list_in("endpoints", each)
    assert lines[0]["endpoints"] == ["a:1", "b:1"]


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("is_request", [True, False])
def test_no_text_of_a_caller_breaks_a_line_or_steers_a_terminal(form, is_request):
    written = io.BytesIO() if form == "json" else io.StringIO()
    make = structlog.BytesLogger if form == "json" else structlog.PrintLogger
    logger = structlog.wrap_logger(
        make(written), logs.processors(form), wrapper_class=logs.LeveledLogger
    )
    text = HOSTILE if is_request else HOSTILE.replace("\ud800", "")
    fields = {"path": text, "user": text, "metadata": {text: text}}
    logger.info("request", **(bounded(fields) if is_request else fields))
    shown = written.getvalue()
    line = shown.decode() if isinstance(shown, bytes) else shown
    assert line.count("\n") == 1
    colors = structlog.dev.ConsoleRenderer.get_default_level_styles().values()
    for each in (*colors, *vars(structlog.dev._ColorfulStyles).values()):
        line = line.replace(str(each), "") if form == "text" else line
    assert not {"\x1b", "\r", "\x00"} & set(line)
    assert form == "json" or line[:-1].isprintable()
    assert form == "text" or json.loads(line)["event"] == "request"
