"""The scripted runtime: what it says, and how it ends."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from build_engines import scripted_build
from build_engines.models_file import ScriptedEntry
from port import GenerationInput, Guide, Job, SamplingParams
from scripted.runtime import ScriptedRuntime
from scripted.script import Script
from tests.doubles.sink import KeptTokens
from tests.fixtures.demo_folder import BUILT, FOLDER, TRAINED
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


def said(
    runtime: ScriptedRuntime, prompt=(5,), max_tokens=100, guide=None, generated_ids=(), **sampling
):
    sink = KeptTokens()
    wanted = GenerationInput(
        prompt_ids=[*prompt],
        max_tokens=max_tokens,
        sampling=SamplingParams(**sampling),
        guide=guide,
        generated_ids=[*generated_ids],
    )
    runtime.submit(Job("r", wanted, sink))
    assert sink.is_over.wait(HANG_S)
    return sink


def test_it_says_its_script_and_ends(play):
    assert (said(play()).ids, said(play()).end) == ([1, 2, 3, END], "stop")


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


@pytest.mark.parametrize(
    ("param", "asked"),
    [
        ("guided_decoding_guide", {"guide": Guide("json", "")}),
        ("allowed_token_ids", {"allowed_token_ids": (3,)}),
        ("bad_words_list", {"bad_words": ((1,),)}),
        ("logit_bias_ids", {"logit_bias": ((1, 2.0),)}),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(play, param, asked):
    sink = said(play(), **asked)
    assert (sink.end, sink.ids) == ("refused", [])
    assert sink.message.startswith(f"{param}: ")


def test_log_probs_have_as_many_alternatives_as_were_asked_for(play):
    first, *_ = said(play(log_prob=-0.25), log_probs=3).tokens
    assert first.log_probs.sampled == -0.25
    assert [value for _, value in first.log_probs.top] == [-0.25, -1.25, -2.25]
    assert first.log_probs.top[0][0] == first.id


def test_it_fails_when_it_is_told_to(play):
    sink = said(play(fails_after=2))
    assert (sink.ids, sink.end) == ([1, 2], "failed")


def test_a_cancelled_job_ends_at_the_next_step(play):
    runtime, sink = play(repeats=True, step_ms=5), KeptTokens()
    runtime.submit(Job("r", GenerationInput(prompt_ids=[1], max_tokens=10_000), sink))
    eventually(lambda: sink.ids, 10, "it runs")
    assert runtime.cancel("r")
    assert sink.is_over.wait(HANG_S)
    assert sink.end == "cancelled"
    assert len(sink.ids) < 1000
    assert not runtime.cancel("r")


def test_a_script_is_built_from_words(tmp_path):
    weights, built = tmp_path / "weights", tmp_path / "m"
    weights.mkdir()
    for name in TRAINED | BUILT:
        (weights / name).symlink_to(FOLDER / name)
    options = {"text": "Hello!", "after": {"</think>\n\n": "Yes."}}
    given = {"runtime": "scripted", "context_length": 1000, "scripted": options}
    entry = ScriptedEntry.model_validate({"weights": weights, **given})
    scripted_build.build("m", entry, tmp_path, print)
    assert scripted_build.is_built("m", entry, tmp_path)
    stored = json.loads((built / "script.json").read_text())
    facts = json.loads((built / "facts.json").read_text())
    special, usual = stored["parts"]
    assert Counter(part["ids"][-1] for part in (special, usual)) == {facts["end_ids"][0]: 2}
    assert usual["after"] == []
    assert special["after"]
    assert facts["context_length"] == 1000
