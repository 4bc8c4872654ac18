"""The tensorrt_llm runtime through its port, on a stand-in that keeps to upstream's signatures."""

from __future__ import annotations

import json
import sys
import threading
import time
from random import Random

import pytest
from tensorrt_llm import LLM

from port import GenerationInput, Job
from tests.doubles.sink import KeptTokens
from tests.fixtures.stack import HANG_S, eventually
from tests.fixtures.trtllm_runtime import PROMPT, executor, generate, sent
from trtllm.library import Library, StartFailed
from trtllm.progress import COLLECT_EVERY_S


def test_a_prompt_is_told_again_before_the_answer_or_alone(runtime):
    running = runtime()
    sink = generate(running, echoes_prompt=True)
    assert [token.id for token in sink.echoed] == PROMPT
    assert (sink.ids, sink.end) == ([5, 6, 7, 5, 6], "length")
    alone = generate(running, echoes_prompt=True, max_tokens=0)
    assert ([token.id for token in alone.echoed], alone.ids, alone.end) == (PROMPT, [], "length")
    assert len(sent()) == 1


def test_an_answer_that_another_engine_began_is_refused_by_name(runtime):
    sink = generate(runtime(), generated_ids=[5, 6])
    assert (sink.ids, sink.end) == ([], "refused")
    assert sink.message.startswith("resume_from: TensorRT-LLM cannot continue an answer")
    assert not sent()


def test_a_cancel_right_after_the_submit_counts(runtime):
    running = runtime()
    sink = generate(running, max_tokens=10_000, wait=False)
    assert running.cancel("r")
    assert sink.is_over.wait(HANG_S)
    assert sink.end == "cancelled"


def test_a_request_that_fails_leaves_the_others_alone(runtime):
    running = runtime({"error_at": 3})
    failed, short = generate(running, max_tokens=5), generate(running, max_tokens=2)
    assert (failed.end, short.end) == ("failed", "length")
    assert "CUDA error in one request" in failed.message


def test_an_executor_that_went_while_nobody_asked_is_noticed(runtime):
    died = threading.Event()
    runtime(died=lambda reason: died.set())
    executor().shutdown()
    assert died.wait(HANG_S)


@pytest.mark.parametrize("is_later", [False, True], ids=["_error_queue", "_fatal_error of 1.3"])
def test_an_error_of_a_background_thread_or_a_worker_is_noticed_while_streams_wait(
    runtime, is_later
):
    """Upstream raises it with the next request or response, of which there may be none."""
    deaths: list[str] = []
    died = threading.Event()

    def die(reason: str) -> None:
        deaths.append(reason)
        died.set()

    running = runtime({"step_s": 10}, died=die)
    sink = generate(running, max_tokens=10, wait=False)
    eventually(sent, 2, "it runs")
    error = RuntimeError("MPI worker of rank 1 was killed")
    if is_later:
        executor()._fatal_error = error
    else:
        executor()._error_queue.put(error)
    assert died.wait(HANG_S)
    assert deaths == ["TensorRT-LLM's executor has ended: MPI worker of rank 1 was killed"]
    assert (sink.end, sink.message) == ("failed", deaths[0])


def watched(started, clock, die):
    """A runtime on the same engine, whose time is `clock`."""
    from hang_watch import HangWatch
    from trtllm.runtime import TrtllmRuntime

    return TrtllmRuntime(LLM.latest, started._generator.translator, HangWatch(300, clock), die)


@pytest.mark.parametrize(
    ("script", "is_counted"),
    [({}, False), ({"tokens_a_response": 10_000}, True)],
    ids=["each response", "each iteration"],
)
def test_progress_keeps_it_alive(runtime, script, is_counted):
    """Without statistics none are requested, and responses alone are progress."""
    deaths: list[str] = []
    now, looks = [0.0], []
    statistics = json.dumps({"enable_iter_perf_stats": True} if is_counted else {})
    running = watched(
        runtime({"step_s": 0.01, **script}, llm_args=statistics),
        lambda: looks.append(now[0]) or now[0],
        deaths.append,
    )
    generate(running, max_tokens=10_000, wait=False)
    for _ in range(3):
        before = len(looks)
        now[0] += 200
        eventually(lambda before=before: len(looks) > before + 4, 10, "it is watched")
        eventually(lambda: running.stats.seconds_without_progress == 0, 10, "it makes progress")
    assert not deaths


def test_a_close_ends_what_runs(runtime):
    running = runtime()
    sink = generate(running, max_tokens=10_000, wait=False)
    eventually(lambda: sink.ids, 10, "it runs")
    running.close()
    assert sink.end == "cancelled"
    assert executor() is None
    running.close = lambda: None


def test_many_requests_of_which_half_are_cancelled_leave_nothing_behind(runtime):
    running, random = runtime(), Random(1)
    sinks = []
    for number in range(400):
        sinks.append(KeptTokens())
        wanted = GenerationInput(prompt_ids=PROMPT, max_tokens=random.randint(1, 9))
        running.submit(Job(str(number), wanted, sinks[-1]))
        if random.random() < 0.5:
            running.cancel(str(random.randint(0, number)))
    for sink in sinks:
        assert sink.is_over.wait(HANG_S)
        assert sink.end in ("length", "cancelled")
    eventually(lambda: not running.in_flight, 10, "none is in flight")
    assert not executor().running
    assert {sink.end for sink in sinks} == {"length", "cancelled"}


def test_no_statistics_are_asked_for_before_the_first_request(runtime):
    """Upstream complains of that in the log, each time."""
    running = runtime(llm_args=json.dumps({"enable_iter_perf_stats": True}))
    time.sleep(COLLECT_EVERY_S + 0.1)
    assert LLM.latest.complaints == []
    generate(running)
    eventually(lambda: running.stats.decode_steps, 5, "iterations are counted")


@pytest.mark.parametrize(
    ("tokens_a_response", "load"), [(10_000, (0, 1)), (1, (1, 0))], ids=["no token yet", "a token"]
)
def test_without_statistics_a_request_waits_up_to_its_first_token(runtime, tokens_a_response, load):
    running = runtime({"step_s": 0.01, "tokens_a_response": tokens_a_response})

    def is_load(rows: int, waiting: int) -> bool:
        return (running.stats.rows, running.stats.waiting) == (rows, waiting)

    generate(running, max_tokens=10_000, wait=False)
    eventually(lambda: is_load(*load), 10, "it is counted")
    assert running.cancel("r")
    eventually(lambda: is_load(0, 0), 10, "it is over")
    assert not running.stats.has_kv_blocks


@pytest.mark.parametrize(
    ("script", "parameters", "message"),
    [
        ({"start_error": "no CUDA device"}, {}, r"1\.2\.1 cannot start the model in .*no CUDA"),
        ({"stillborn": True}, {}, "its executor is not running"),
        (
            {},
            {"llm_args": '{"tp": 2}'},
            r"with \{\"tp\": 2\}: (.|\n)*tp\n *Extra inputs are not permitted",
        ),
        ({}, {"trtllm_backend": "cuda"}, "trtllm_backend is 'cuda', must be 'pytorch' or"),
    ],
)
def test_a_start_that_fails_says_why(runtime, script, parameters, message):
    with pytest.raises(StartFailed, match=message):
        runtime(script, **parameters)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt_llm", None)
    with pytest.raises(StartFailed, match=r"pytorch backend cannot be imported.*container"):
        Library.load("pytorch")
