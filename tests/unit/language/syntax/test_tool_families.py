"""Every family: calls and the text around them come back, however the text is cut.

The calls are a part of the Berkeley function-calling leaderboard's (BFCL v4, Apache-2.0).
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.domain.events import TextDelta
from proxy.language.syntax.families import REASONING_FAMILIES as REASONING
from proxy.language.syntax.families import TOOL_FAMILIES as FAMILIES
from proxy.language.syntax.families import in_template
from tests.fixtures.examples import examples
from tests.strategies import cuts
from tests.unit.language.syntax.folding import answered, parser_of
from tests.unit.language.syntax.syntaxes import SYNTAXES, UNSAYABLE, dumped

CUT_SEEDS = examples(15)  # ways that each text is cut
CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "tool_calls.jsonl").read_text().splitlines()
]
every_family = pytest.mark.parametrize("family", sorted(FAMILIES))
# Letters, punctuation and half delimiters, no whole one, and no list that the call would be in.
AROUND = st.text(alphabet="aé <>|[]{}\"'/\n_=", max_size=20).filter(
    lambda text: text.strip() and text.strip()[-1] not in "[{"
)


def sayable(family: str, case: dict) -> bool:
    return not any(
        UNSAYABLE.get(family, lambda call, tools: False)(call, case["tools"])
        for call in case["calls"]
    )


def pieces_of(text: str, seed: int) -> list[str]:
    chance = random.Random(seed)
    pieces, at = [], 0
    while at < len(text):
        size = chance.choice((1, 2, 3, 5, 8, 40))
        pieces.append(text[at : at + size])
        at += size
    return pieces


@pytest.mark.hypothesis
@every_family
def test_calls_and_text_come_back_however_the_text_is_cut(family):
    written = 0
    for number, case in enumerate(CASES):
        if not sayable(family, case):
            continue
        written += 1
        before, after = ("Let me see:\n", "\nDone é.") if number % 2 else ("", "")
        text = before + SYNTAXES[family](case["calls"]) + after
        answer = answered(parser_of(family, case["tools"]), [text])
        assert answer.calls == case["calls"], text
        assert answer.text == before + after
        assert not answer.is_cut
        for seed in range(CUT_SEEDS):
            pieces = pieces_of(text, number * CUT_SEEDS + seed)
            assert answered(parser_of(family, case["tools"]), pieces) == answer, pieces
    assert written > 200


@every_family
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_text_around_calls_does_not_change(family, data):
    case = data.draw(st.sampled_from([case for case in CASES if sayable(family, case)]))
    before, after = data.draw(AROUND) + "\n", "\n" + data.draw(AROUND)
    text = before + SYNTAXES[family](case["calls"]) + after
    answer = answered(parser_of(family, case["tools"]), data.draw(cuts(text)))
    assert answer.calls == case["calls"]
    assert answer.text == before + after


def marks_of(family: str) -> re.Pattern[str]:
    marks = sorted(FAMILIES[family].control_marks(), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, marks)) or '(?!)'})")


@every_family
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_mark_reaches_the_client_from_broken_calls(family, data):
    """Behind the begin of a call: its parts and marks in any order, cut anywhere."""
    case = data.draw(st.sampled_from([case for case in CASES if sayable(family, case)]))
    marks = marks_of(family)
    parts = [*marks.split(SYNTAXES[family](case["calls"])), *FAMILIES[family].control_marks()]
    order = data.draw(st.lists(st.sampled_from([*parts, "so", " ", '{"name": "']), max_size=20))
    text = "".join([*FAMILIES[family].clear_starts()[:1], *order])
    parser = parser_of(family, case["tools"])
    events = [event for piece in data.draw(cuts(text)) for event in parser.push(piece)]
    events += parser.flush(has_ended=True)
    said = [event.text for event in events if isinstance(event, TextDelta)]
    assert not [one for one in said if marks.search(one)]
    whole = parser_of(family, case["tools"])
    events = whole.push(text) + whole.flush(has_ended=True)
    assert "".join(said) == "".join(one.text for one in events if isinstance(one, TextDelta))


@every_family
def test_a_call_that_is_cut_off_anywhere_stays_incomplete(family):
    case = next(
        case
        for case in CASES
        if len(case["calls"]) == 1 and sayable(family, case) and len(dumped(case["calls"])) > 120
    )
    call, text = case["calls"][0], SYNTAXES[family](case["calls"])
    whole = answered(parser_of(family, case["tools"]), [text]).arguments[0]
    for end in range(len(text)):
        answer = answered(parser_of(family, case["tools"]), [text[:end]])
        if answer.names:
            assert answer.names == [call["name"]]
            assert whole.startswith(answer.arguments[0])
            assert answer.text == ""
            assert answer.is_cut == (answer.arguments[0] != whole)
        else:
            assert answer.text.strip() == marks_of(family).sub("", text[:end]).strip()


@every_family
def test_arguments_stream_as_they_are_written(family):
    tools = {"f": {"type": "object", "properties": {"city": {"type": "string"}}}}
    text = SYNTAXES[family]([{"name": "f", "arguments": {"city": "x" * 100}}])
    parser = parser_of(family, tools)
    seen = "".join(
        event.fragment
        for event in parser.push(text[: text.index("x" * 100) + 50])
        if hasattr(event, "fragment")
    )
    assert "x" * 40 in seen


@every_family
def test_text_without_calls_passes_at_once(family):
    parser = parser_of(family, {"f": {}})
    seen = "".join(event.text for event in parser.push("Hello, world. 1 < 2"))
    assert seen == "Hello, world. 1 < 2"


@every_family
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_nonsense_never_raises_and_finished_calls_are_json(family, data):
    tools = {"f": {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}}
    sample = SYNTAXES[family]([{"name": "f", "arguments": {"a": "x", "n": 1}}] * 2)
    scraps = [*parser_of(family).starts, *"{}[]()\",:\\'\n=", "f", "name", '{"name": "f"', "tru"]
    places = st.integers(0, len(sample))
    slices = st.tuples(places, places).map(lambda ends: sample[min(ends) : max(ends)])
    text = "".join(
        data.draw(st.lists(st.sampled_from(scraps) | slices | st.text(max_size=3), max_size=12))
    )
    whole = answered(parser_of(family, tools), [text])
    finished = whole.arguments[:-1] if whole.is_cut else whole.arguments
    assert all(isinstance(json.loads(arguments), dict) for arguments in finished)
    assert answered(parser_of(family, tools), data.draw(cuts(text))) == whole
    assert answered(parser_of(family, tools), list(text)) == whole


def test_kimi_keeps_the_model_s_own_id():
    text = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:7"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
    )
    assert answered(parser_of("kimi_k2"), [text]).ids == ["functions.f:7"]


def test_kimi_gives_a_call_a_new_id_where_the_model_repeats_one():
    """A result names its call by the id, so a history with one id for two calls is refused."""
    calls = "".join(
        f"<|tool_call_begin|>functions.f:{number}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
        for number in (1, 1, 1, 2)
    )
    text = f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>"
    ids = answered(parser_of("kimi_k2"), [text]).ids
    assert ids[0] == "functions.f:1"
    assert (len(ids), len(set(ids))) == (4, 4)


@pytest.mark.parametrize(
    ("own_id", "tools", "name", "told_id"),
    [
        ("functions.a.f:1", "fg", "a.f", "functions.a.f:1"),
        ("f:1", "fg", "f", "f:1"),
        ("f", "fg", "f", "id0"),
        ("1", "f", "f", "id0"),
        ("1", "fg", "1", "id0"),
    ],
)
def test_kimi_leaves_out_parts_of_the_id(own_id, tools, name, told_id):
    text = f"<|tool_call_begin|>{own_id}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    answer = answered(parser_of("kimi_k2", {tool: {} for tool in tools}), [text])
    assert (answer.names, answer.ids, answer.text) == ([name], [told_id], "")


# Their templates have no marks of calls, or share another family's syntax.
UNMARKED = {
    "exaone",
    "llama3_json",
    "llama4_json",
    "xlam",
    "pythonic",
    "qwen3_xml",
    "json_list",
    "generic",
}


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - UNMARKED))
def test_a_template_that_renders_a_family_s_calls_names_it(family):
    calls = [{"name": "f", "arguments": {"a": "b"}}]
    assert (
        in_template("{% if tools %}" + SYNTAXES[family](calls) + "{% endif %}", FAMILIES) == family
    )


@pytest.mark.parametrize(
    ("template", "family"),
    [
        ("{{ 'Environment: ipython' }} {'name': f, \"parameters\": {}}", "llama3_json"),
        ("{{ '[|assistant|]\\n' }}{{ '<tool_call>' }}", "exaone"),
        ("use [func_name1(params_name1=params_value1)]", "pythonic"),
        ("<|system|>{{ system }}<|tool|>{{ tools }}<|/tool|>", "phi4_mini_json"),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", None),
    ],
)
def test_other_marks_of_templates(template, family):
    assert in_template(template, FAMILIES) == family


def test_ids_have_the_form_that_models_want():
    hermes, mistral, kimi = (FAMILIES[name] for name in ("hermes", "mistral", "kimi_k2"))
    assert re.fullmatch("call_[0-9a-f]{24}", hermes.new_id("f", 0))
    assert re.fullmatch("[0-9A-Za-z]{9}", mistral.new_id("f", 0))
    assert kimi.new_id("a.f", 2) == "functions.a.f:2"


DOCS = (Path(__file__).parents[4] / "docs" / "tools.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "families"), [("tool_parser", FAMILIES), ("reasoning_parser", REASONING)]
)
def test_every_family_has_a_row(heading, families):
    table = DOCS[DOCS.index(f"| `{heading}` |") :].split("\n\n", 1)[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} == set(families)
