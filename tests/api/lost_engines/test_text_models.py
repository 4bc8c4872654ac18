"""Streams of models of others, which take text only, that lose their engine in the middle."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

import pytest
import yaml
from structlog.testing import capture_logs

from proxy.domain.model import CAPABILITIES, Adopted, Kind
from tests.api.formats import named
from tests.api.lost_engines.test_continuation import CASES, CHAT, HI, NUMBER, plain
from tests.api.tools.test_tools import CATALOG, TEMPLATE, TOOLS
from tests.doubles.engine import FixedCatalog
from tests.doubles.text_engine import TextEngine
from tests.fixtures.scripted import WEIGHTS

TAKEN = ("plain", "characters", "stop", "usage", "tools", "reasoning", "reasoning and tools")
GREEDY = {"temperature": 0}
LOST = "The model server was lost in the middle of this answer"


@pytest.fixture
def started(serve, tmp_path):
    """started(engine, continues, has_ids) -> a client of a model with this entry."""

    def start(engine: TextEngine, continues: str, *, has_ids: bool = True):
        (tmp_path / "template").write_text(TEMPLATE)
        entry = {
            "adopt": "demo",
            "tokenizer": str(WEIGHTS),
            "chat_template": str(tmp_path / "template"),
            **({} if continues == "ids" else {"continue": continues}),  # ids: the default
        }
        file = tmp_path / "models.yaml"
        file.write_text(yaml.safe_dump({"models": {"demo": entry}}))
        return serve(engine, catalog=catalog(has_ids=has_ids), models_file=file)

    return start


def catalog(*, has_ids: bool) -> FixedCatalog:
    adopted = Adopted(
        kind=Kind.VLLM if has_ids else Kind.LLMAPI,
        inputs={},
        outputs={},
        has_batches=False,
        is_decoupled=True,
    )
    lacks = {"resume", "plain_spans", "priority", "cache_salt"}
    lacks |= set() if has_ids else {"token_ids", "log_prob_ids"}
    facts = replace(CATALOG.facts, adopted=adopted)
    return FixedCatalog(facts=facts, capabilities=CAPABILITIES - lacks)


def folded(stream: str) -> dict[str, str]:
    """What its events add up to."""
    found: dict[str, str] = defaultdict(str)
    lines = (one.removeprefix("data: ") for one in stream.splitlines() if "data: {" in one)
    for choice in (one for line in lines for one in json.loads(line)["choices"]):
        calls = choice.get("delta", {}).pop("tool_calls", ())
        for part in (choice, choice.get("delta", {}), *(one["function"] for one in calls)):
            for key, value in part.items():
                found[key] += value if isinstance(value, str) else ""
    return found


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize(
    ("continues", "has_ids", "how"),
    [("ids", True, ""), ("text", True, ", by its text"), ("text", False, ", by its text")],
)
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("spells", [False, True])
def test_a_greedy_stream_that_is_cut_anywhere_is_byte_for_byte_the_whole_one(
    started, name, continues, has_ids, how, at_once, spells
):
    path, body, texts = CASES[name]
    engine = TextEngine(*texts, at_once=at_once)
    engine.spells = spells
    client = started(engine, continues, has_ids=has_ids)
    body = {**body, **GREEDY, "stream": True}
    undisturbed = client.post(path, json=body).text
    counts = set()
    for cut in range(1, len(engine._deltas(engine.requests[0]))):
        engine.requests.clear()
        engine.cut = cut
        text = client.post(path, json=body).text
        if at_once > 1:  # a part begins elsewhere, and so do its events
            assert folded(text) == folded(undisturbed), cut
        elif continues == "ids" or name != "characters":  # a character's beginning counts twice
            assert plain(text) == plain(undisturbed), cut
        counts.add(len(engine.requests))
        note = f": continued 1 (endpoint lost{how})\n\n"
        assert text.count(note) == len(engine.requests) - 1
        said = [one for one in engine.requests if one.said]
        assert all(bool(one.generated) is (continues == "ids") for one in said)
    assert 2 in counts or not counts  # an answer of one delta


@pytest.mark.parametrize("continues", ["ids", "text"])
def test_a_whole_answer_and_the_log_say_how_it_was_continued(started, continues):
    client = started(TextEngine("Once upon", cut=4), continues)
    with capture_logs() as lines:
        answer = client.post(CHAT, json={**HI, **GREEDY})
    assert answer.json()["choices"][0]["message"]["content"] == "Once upon"
    assert answer.headers["x-continued"] == "1"
    assert answer.headers["x-continued-by"] == continues
    (line,) = [one for one in lines if one["event"] == "stream continues"]
    assert (line["by"], line["tokens"]) == (continues, 4)


GUIDED = {**HI, **named(NUMBER, strict=True)}
REASONS = [
    ("none", True, HI, 4, "the server is configured so"),
    ("ids", False, HI, 4, "the model reports no token ids"),
    ("ids", True, GUIDED, 4, "the engine cannot restore the state of a guide"),
    ("text", True, GUIDED, 4, "the engine cannot restore the state of a guide"),
    ("ids", True, {**HI, "seed": 1, "temperature": 1}, 4, "the random numbers of a seed"),
    ("ids", True, {**HI, "presence_penalty": 1}, 4, "presence and frequency penalties"),
    ("ids", True, HI, 2, "no text has exactly its tokens"),
]


@pytest.mark.parametrize(("continues", "has_ids", "body", "cut", "reason"), REASONS)
def test_what_cannot_be_continued_ends_with_an_error_that_names_the_reason(
    started, continues, has_ids, body, cut, reason
):
    text = '{"n": 12}' if body is GUIDED else "aé and on"
    client = started(TextEngine(text, cut=cut), continues, has_ids=has_ids)
    answer = client.post(CHAT, json=body)
    assert answer.status_code == 503
    error = answer.json()["error"]
    assert error["message"].startswith(LOST)
    assert reason in error["message"]
    streamed = client.post(CHAT, json={**body, "stream": True}).text
    last = [line for line in streamed.splitlines() if line.startswith("data: {")][-1]
    assert reason in json.loads(last.removeprefix("data: "))["error"]["message"]


@pytest.mark.parametrize("changes", ["ids", "text"])
def test_an_engine_that_generates_other_tokens_again_ends_the_answer(started, changes):
    class Fickle(TextEngine):
        spells = True

        def _deltas(self, request):
            found = super()._deltas(request)
            if request.said is None:
                return found
            if changes == "ids":
                return [
                    replace(one, token_ids=tuple(id + 1 for id in one.token_ids)) for one in found
                ]
            return [replace(one, token_bytes=(b"-",) * len(one.token_bytes)) for one in found]

    answer = started(Fickle("Once upon", cut=6), "ids").post(CHAT, json={**HI, **GREEDY})
    assert answer.status_code == 503
    assert "generated other tokens" in answer.json()["error"]["message"]


def test_a_stream_that_is_lost_again_and_again_comes_whole(started):
    text = "It goes on and on. " * 10
    for continues in ("ids", "text"):
        client = started(TextEngine(text, cut=10, cuts_all=True), continues)
        answer = client.post(CHAT, json={**HI, **GREEDY})
        assert answer.json()["choices"][0]["message"]["content"] == text
        if continues == "ids":  # by its text, a token that was cut counts twice
            assert answer.json()["usage"]["completion_tokens"] == len(TextEngine().ids(text)) + 1


def test_streams_that_nobody_wants_to_continue_ask_for_no_ids(started):
    for continues, keeps in (("ids", True), ("text", False), ("none", False)):
        engine = TextEngine("ab")
        started(engine, continues).post(CHAT, json={**HI, "tools": TOOLS})
        assert [one.keeps_ids for one in engine.requests] == [keeps]
