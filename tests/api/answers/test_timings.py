"""`include_timings`: the engine's times, summed over all streams that made the answer."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from proxy.domain.output import EngineTimes, TokenDelta
from tests.api.formats import BOTH, CHAT, CHAT_BODY, TEXT, TEXT_BODY, named
from tests.api.lost_engines.test_continuation import NUMBER
from tests.api.tools.test_server_tools import call
from tests.api.tools.test_tools import CATALOG as TOOL_CATALOG
from tests.doubles.dying_engine import DyingEngine
from tests.doubles.engine import CAPABILITIES, FixedCatalog, ScriptedEngine, deltas

TIMES = EngineTimes(prefill_s=0.06, decode_s=0.12)
MUTE = FixedCatalog(capabilities=CAPABILITIES - {"engine_times"})
# of deltas("abc"): 7 tokens of the prompt, 4 of them cached, then 3 bytes and the end token
ONE = {
    "cache_n": 4,
    "prompt_n": 3,
    "prompt_ms": 60.0,
    "prompt_per_token_ms": 20.0,
    "prompt_per_second": 50.0,
    "predicted_n": 4,
    "predicted_ms": 120.0,
    "predicted_per_token_ms": 30.0,
    "predicted_per_second": 33.333,
    "queue_ms": 5.0,
}
SPEEDS = ("per_token_ms", "per_second")


def timed(text: str, *, queue_s: float | None = 0.005) -> list[TokenDelta]:
    """As an engine that reports its times gives them."""
    first, *others, last = deltas(text)
    return [replace(first, queue_s=queue_s), *others, replace(last, times=TIMES)]


def whole(client, path: str, body: dict[str, Any], **fields: object) -> dict[str, Any]:
    response = client.post(path, json={"include_timings": True, **body, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def chunks(client, path: str, body: dict[str, Any], **fields: object) -> list[dict[str, Any]]:
    asked = {"include_timings": True, **body, "stream": True, **fields}
    text = client.post(path, json=asked).text
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]


def both(client, path: str, body: dict[str, Any], **fields: object) -> dict[str, Any]:
    """The timings of the whole answer, which are also in the last chunk of its stream, and only
    there."""
    timings = whole(client, path, body, **fields)["timings"]
    streamed = chunks(client, path, body, **fields)
    assert [chunk for chunk in streamed if "timings" in chunk] == [streamed[-1]]
    assert streamed[-1]["timings"] == timings
    return timings


@BOTH
def test_whole_answer_and_last_chunk_have_llama_cpps_names(serve, path, body):
    assert both(serve(ScriptedEngine(timed("abc"))), path, body) == ONE


@BOTH
@pytest.mark.parametrize("fields", [{}, {"include_timings": False}, {"include_timings": None}])
def test_who_does_not_ask_gets_none(serve, path, body, fields):
    client = serve(ScriptedEngine(timed("abc")))
    assert "timings" not in client.post(path, json={**body, **fields}).json()
    assert "timings" not in client.post(path, json={**body, **fields, "stream": True}).text


@BOTH
def test_they_are_in_the_chunk_of_the_usage_if_there_is_one(serve, path, body):
    client = serve(ScriptedEngine(timed("abc")))
    *others, last = chunks(client, path, body, stream_options={"include_usage": True})
    assert (last["choices"], last["timings"]) == ([], ONE)
    assert not any("timings" in chunk for chunk in others)


@BOTH
def test_choices_add_up_and_their_longest_wait_counts(serve, path, body):
    scripts = [timed("abc"), timed("abc", queue_s=0.009)]
    engine = ScriptedEngine(scripts[0], then=[scripts[1], *scripts])
    timings = both(serve(engine), path, body, n=2)
    assert {name: value for name, value in timings.items() if not name.endswith(SPEEDS)} == {
        **{"cache_n": 4, "prompt_n": 3, "prompt_ms": 120.0},
        **{"predicted_n": 8, "predicted_ms": 240.0, "queue_ms": 9.0},
    }
    assert timings["predicted_per_second"] == ONE["predicted_per_second"], "of one choice"


def test_several_prompts_add_up(serve):
    timings = both(serve(ScriptedEngine(timed("abc"))), TEXT, {**TEXT_BODY, "prompt": ["a", "b"]})
    doubled = ("cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
    assert timings == {**ONE, **{name: 2 * ONE[name] for name in doubled}}


def test_rounds_of_tools_add_up(serve, policy):
    texts = (call("weather"), "12 degrees.")
    scripts = [timed(text) for text in texts]

    def client():
        engine = ScriptedEngine(scripts[0], then=[scripts[1]])
        return serve(engine, TOOL_CATALOG, models_file=policy())

    timings = whole(client(), CHAT, CHAT_BODY)["timings"]
    assert (timings["prompt_ms"], timings["predicted_ms"]) == (120.0, 240.0)
    assert (timings["queue_ms"], timings["prompt_n"], timings["cache_n"]) == (10.0, 6, 8)
    assert timings["predicted_n"] == sum(len(text) + 1 for text in texts)
    assert chunks(client(), CHAT, CHAT_BODY)[-1]["timings"] == timings


def test_attempts_that_broke_the_schema_count_too(serve):
    """On an engine without guided decoding."""
    catalog = FixedCatalog(capabilities=CAPABILITIES - {"constraint"})
    wrong, right = timed('{"n": "x"}'), timed('{"n": 1}')
    client = serve(ScriptedEngine(wrong, then=[right]), catalog)
    timings = whole(client, CHAT, CHAT_BODY, **named(NUMBER, strict=True))["timings"]
    assert (timings["prompt_ms"], timings["predicted_ms"], timings["queue_ms"]) == (120, 240, 10)


@BOTH
def test_what_the_engine_does_not_report_is_null(serve, path, body):
    timings = both(serve(ScriptedEngine(deltas("abc")), MUTE), path, body)
    assert {name for name, value in timings.items() if value is not None} == {
        *("cache_n", "prompt_n", "predicted_n")
    }
    counts = {name: ONE[name] for name in ("cache_n", "prompt_n", "predicted_n")}
    assert counts.items() <= timings.items()
    nvext = {"nvext": {"extra_fields": ["timing"]}}
    client = serve(ScriptedEngine(deltas("abc")), MUTE)
    timing = client.post(path, json={**body, **nvext}).json()["nvext"]["timing"]
    assert timing["decode_time_ms"] is timing["prefill_time_ms"] is timing["queue_time_ms"] is None


def test_one_token_has_no_speed(serve):
    script = replace(deltas("")[0], prompt_tokens=4, cached_tokens=4, queue_s=0.0)
    none = EngineTimes(prefill_s=0.001, decode_s=0.0)
    timings = both(serve(ScriptedEngine([replace(script, times=none)])), CHAT, CHAT_BODY)
    assert (timings["predicted_n"], timings["predicted_ms"]) == (1, 0.0)
    assert (timings["prompt_n"], timings["prompt_ms"], timings["queue_ms"]) == (0, 1.0, 0.0)
    speeds = {value for name, value in timings.items() if name.endswith(SPEEDS)}
    assert speeds == {None}


@BOTH
def test_a_stream_that_a_stop_string_ended_is_timed_by_the_proxy(serve, path, body):
    """The engine reports with its last response, which the proxy does not wait for."""
    client = serve(ScriptedEngine(timed("abc", queue_s=0.0), pause_s=0.02))
    began = time.perf_counter()
    timings = whole(client, path, body, stop="b")["timings"]
    took_ms = (time.perf_counter() - began) * 1000
    assert timings["predicted_n"] == 2
    assert timings["prompt_ms"] >= 15
    assert timings["predicted_ms"] >= 15
    assert timings["prompt_ms"] + timings["predicted_ms"] <= took_ms
    assert timings["queue_ms"] == 0.0


def test_reasoning_that_its_budget_ended_counts_too(serve):
    script, rest = timed("<think>I ponder</think>no"), timed("so it is")
    client = serve(ScriptedEngine(script, then=[rest], pause_s=0.01), TOOL_CATALOG)
    timings = whole(client, CHAT, CHAT_BODY, thinking_token_budget=4)["timings"]
    assert timings["queue_ms"] == 10.0
    assert timings["predicted_ms"] > 120 + 30, "of the first stream by the proxy's clock"


class TimedDyingEngine(DyingEngine):
    """Reports its times with the last delta, if it gets there."""

    def _deltas(self, request):
        *others, last = super()._deltas(request)
        first, *rest = [*others, replace(last, times=TIMES)]
        return [replace(first, queue_s=0.004), *rest]


@pytest.mark.parametrize("streams", [False, True])
def test_the_parts_of_a_continued_answer_add_up(serve, streams):
    engine = TimedDyingEngine("abc", cut=2)
    client = serve(engine, TOOL_CATALOG)
    answer = chunks(client, CHAT, CHAT_BODY)[-1] if streams else whole(client, CHAT, CHAT_BODY)
    assert len(engine.requests) == 2
    timings = answer["timings"]
    assert timings["predicted_n"] == 4
    assert timings["prompt_ms"] >= 60
    assert timings["predicted_ms"] > 120, "the proxy's clock counts for the part that was lost"
    assert timings["queue_ms"] == 8.0


def test_nvexts_timing_has_them_too(serve):
    client = serve(ScriptedEngine(timed("abc")))
    expected = {"queue_time_ms": 5.0, "prefill_time_ms": 60.0, "decode_time_ms": 120.0}
    body = {**CHAT_BODY, "nvext": {"extra_fields": ["timing"]}}
    assert expected.items() <= client.post(CHAT, json=body).json()["nvext"]["timing"].items()
    body["nvext"]["annotations"] = ["timing"]
    lines = client.post(CHAT, json={**body, "stream": True}).text.split("\n")
    (comment,) = [line for line in lines if line.startswith(": timing ")]
    *_, last = [line for line in lines if line.startswith("data: {")]
    assert expected.items() <= json.loads(comment.removeprefix(": timing ")).items()
    assert expected.items() <= json.loads(last[6:])["nvext"]["timing"].items()


def test_the_socket_has_them_in_its_last_chunk(serve):
    client = serve(ScriptedEngine(timed("abc")))
    with client.websocket_connect("/v1/chat/completions/ws") as socket:
        socket.send_json({**CHAT_BODY, "include_timings": True})
        messages = []
        while (message := socket.receive_json()).get("type") != "done":
            messages.append(message)
    assert messages[-1]["timings"] == ONE
    assert not any("timings" in message for message in messages[:-1])


def test_with_the_cached_tokens_the_time_of_prefill_is_hidden(serve):
    client = serve(ScriptedEngine(timed("abc")), report_cached_tokens=False)
    timings = both(client, CHAT, CHAT_BODY)
    assert (timings["cache_n"], timings["prompt_n"], timings["prompt_ms"]) == (0, 7, None)
    assert (timings["predicted_ms"], timings["queue_ms"]) == (120.0, 5.0)
