"""The scripted runtime: what it says, and how it ends."""

from __future__ import annotations

import json

import pytest

from port import GenerationInput, Job, SamplingParams
from scripted.playback import Script
from scripted.runtime import ScriptedRuntime
from tests.doubles.sink import KeptTokens
from tests.fixtures.stack import HANG_S, eventually

END = 9
ANSWER = {"after": [], "ids": [1, 2, 3, END]}
HASTE = {"step_tokens": 1, "step_ms": 0, "log_prob": -0.5, "fails_after": None, "repeats": False}


@pytest.fixture
def play(tmp_path):
    """play(…) -> a runtime with this script; closed at the end."""
    runtimes = []

    def made(*parts: dict, **script: object) -> ScriptedRuntime:
        file = tmp_path / "script.json"
        file.write_text(json.dumps({**HASTE, "parts": [*parts, ANSWER], **script}))
        runtimes.append(ScriptedRuntime(Script.read(file)))
        return runtimes[-1]

    yield made
    for runtime in runtimes:
        runtime.close()


def said(runtime: ScriptedRuntime, prompt=(5,), max_tokens=100, generated_ids=(), **sampling):
    sink = KeptTokens()
    wanted = GenerationInput(
        prompt_ids=[*prompt],
        max_tokens=max_tokens,
        sampling=SamplingParams(**sampling),
        generated_ids=[*generated_ids],
    )
    runtime.submit(Job("r", wanted, sink))
    assert sink.is_over.wait(HANG_S)
    return sink


@pytest.mark.parametrize(
    ("asked", "ids", "end"),
    [
        ({"max_tokens": 2}, [1, 2], "length"),
        ({"stop_token_ids": frozenset({2})}, [1, 2], "stop"),
        ({"ignore_eos": True, "max_tokens": 6}, [1, 2, 3, END, 1, 2], "length"),
        ({"min_tokens": 5}, [1, 2, 3, END, 1, 2, 3, END], "stop"),
        ({"prompt": (7, 8)}, [4], "stop"),
        ({"prompt": (8,)}, [1, 2, 3, END], "stop"),
    ],
)
def test_what_a_request_asks_of_it_is_honoured(play, asked, ids, end):
    sink = said(play({"after": [7, 8], "ids": [4]}), **asked)
    assert (sink.ids, sink.end) == (ids, end)


def test_a_stop_of_what_has_ended_is_not_remembered_and_ends_no_later_job_of_the_id(play):
    runtime = play()
    assert not runtime.cancel("r"), "the shell remembers it: the request may still come"
    for _ in range(3):
        assert said(runtime).ids == [1, 2, 3, END]
        eventually(lambda: runtime.cancel("r"), HANG_S, "the job has ended")


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"max_tokens": 3},
        {"ignore_eos": True, "max_tokens": 9},
        {"min_tokens": 6},
        {"stop_token_ids": frozenset({3})},
        {"log_probs": 2},
        {"prompt": (7, 8)},
    ],
)
def test_an_answer_that_is_cut_anywhere_continues_as_it_would_have(play, asked):
    runtime = play({"after": [7, 8], "ids": [4, 5, 6]})
    whole = said(runtime, **asked)
    for cut in range(1, len(whole.ids) + 1):
        rest = said(runtime, generated_ids=whole.ids[:cut], **asked)
        assert (rest.tokens, rest.end) == (whole.tokens[cut:], whole.end)


def test_it_continues_only_its_own_script(play):
    sink = said(play(), generated_ids=[1, 3])
    assert (sink.ids, sink.end) == ([], "refused")
    assert sink.message == "resume_from: the 2 generated tokens are not those of the script"


def test_a_script_that_fails_counts_its_own_tokens_of_a_continued_answer(play):
    sink = said(play(fails_after=2), generated_ids=[1])
    assert (sink.ids, sink.end) == ([2, 3], "failed")
