"""A response template gives what the family gives, and what transformers' own parser gives."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.events import ReasoningDelta, TextDelta
from proxy.language.syntax.families import (
    REASONING_FAMILIES,
    RESPONSE_TEMPLATE,
    TOOL_FAMILIES,
    reasoning_family,
    tool_family,
)
from proxy.language.syntax.parsers import public_name, syntax_of
from proxy.language.syntax.response_template import Refused, described
from tests.doubles.engine import CARD, FACTS
from tests.strategies import cuts
from tests.unit.language.syntax import test_reasoning
from tests.unit.language.syntax.folding import Answer, answered, parser_of
from tests.unit.language.syntax.response_templates import (
    CANNOT,
    CANNOT_REASON,
    REASONING,
    TEMPLATES,
    elements,
    gemma,
    listed,
    named,
    objects,
    thoughts,
)
from tests.unit.language.syntax.syntaxes import SYNTAXES
from tests.unit.language.syntax.test_tool_families import CASES, DOCS, pieces_of, sayable


def name_of(template: dict) -> str:
    return f"{RESPONSE_TEMPLATE}{json.dumps(template)}"


def own(template: dict, tools: dict, pieces: list[str]) -> Answer:
    parser = tool_family(name_of(template))(tools)
    parser.new_id = lambda name, index: f"id{index}"
    return answered(parser, pieces)


def test_every_family_has_a_template_or_a_reason_and_the_docs_say_so():
    table = DOCS[DOCS.index("| family | a response template") :].split("\n\n", 1)[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:-1]]
    named = {
        word: set(re.findall(r"`(\w+)`", "".join(cell for cell, said in rows if word in said)))
        for word in ("yes", "no:")
    }
    assert named == {"yes": set(TEMPLATES), "no:": set(CANNOT)}
    assert set(TEMPLATES) | set(CANNOT) == set(TOOL_FAMILIES)
    assert set(REASONING) | set(CANNOT_REASON) == set(REASONING_FAMILIES)
    assert not set(TEMPLATES) & set(CANNOT)
    assert not set(REASONING) & set(CANNOT_REASON)


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_template_reads_what_its_family_reads_however_the_text_is_cut(family):
    read = 0
    for number, case in enumerate(CASES[::2]):
        if not sayable(family, case):
            continue
        before, after = ("Let me see:\n", "\nDone é.") if number % 2 else ("", "")
        text = before + SYNTAXES[family](case["calls"]) + after
        expected = answered(parser_of(family, case["tools"]), [text])
        assert expected.calls == case["calls"]
        pieces = [[text], pieces_of(text, number)] + ([list(text)] if number % 7 == 0 else [])
        for each in pieces:
            assert own(TEMPLATES[family], case["tools"], each) == expected, each
        read += 1
    assert read > 100
    for at in range(len(text)):
        assert own(TEMPLATES[family], case["tools"], [text[:at], text[at:]]) == expected, at


def split(parser, pieces: list[str]) -> tuple[str, str]:
    events = [event for piece in pieces for event in parser.push(piece)] + parser.flush()
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return thought, "".join(event.text for event in events if isinstance(event, TextDelta))


def answers_with_thoughts(family: str) -> list[str]:
    syntax, end = test_reasoning.SYNTAXES[family], REASONING_FAMILIES[family].ends[0]
    thoughts = ("hm", "a <b> c\n[x]", "I see <tool_call>{} so", f"so `{end}` ends", "")
    texts = [
        syntax.format(thought=thought, answer=answer)
        for thought in thoughts
        for answer in ("Hi", "", "x <think> y </think> z", "1 < 2\n")
    ]
    texts.append(syntax.format(thought="one", answer="") + syntax.format(thought="2", answer="Hi"))
    texts.append(syntax.partition("{thought}")[0] + "without an end")
    return [*texts, "plain", "\n Hello <b>there</b>, </thin", f"hm{end}Hi"]


@pytest.mark.parametrize("family", REASONING)
@pytest.mark.parametrize(
    "options",
    [{}, {"is_inside": True}, {"may_be_inside": True}, {"tool_starts": ["<tool_call>"]}],
    ids=str,
)
def test_a_template_splits_reasoning_and_text_as_its_family_does(family, options):
    parser = reasoning_family(name_of(REASONING[family]))
    for text in answers_with_thoughts(family):
        expected = split(REASONING_FAMILIES[family](**options), [text])
        for at in range(0 if options else len(text)):
            assert split(parser(**options), [text[:at], text[at:]]) == expected, (text, at)
        assert split(parser(**options), list(text)) == expected, text


@pytest.mark.parametrize("family", REASONING)
def test_a_template_knows_a_prompt_that_opens_the_thought(family):
    parser = reasoning_family(name_of(REASONING[family]))
    end = test_reasoning.PROMPT_ENDS.get(family, "<think>\n")
    assert parser.opens_in(f"…{end}")
    assert not parser.opens_in("<|im_start|>assistant\n")


def is_same(ours: object, theirs: object) -> bool:
    """transformers makes a number of the text 1 even where the tool's schema wants a string."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(is_same(ours[k], theirs[k]) for k in ours)
    return ours == theirs or (isinstance(ours, str) and ours == json.dumps(theirs))


@pytest.fixture(scope="module")
def parse_response():
    """transformers' own parser: the oracle."""
    return pytest.importorskip("transformers.utils.chat_parsing").parse_response


def oracle_calls(parse, template: dict, tools: dict, text: str) -> tuple[list, str]:
    listed = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in tools.items()
    ]
    message = parse(text, template, prefix="", tools=listed)
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return calls, message.get("content", "")


@pytest.mark.parametrize("family", TEMPLATES)
def test_calls_are_those_that_transformers_reads(family, parse_response):
    read = 0
    for case in CASES[::2]:
        text = f"Let me see.\n{SYNTAXES[family](case['calls'])}"
        is_single = len(case["calls"]) == 1
        if not sayable(family, case) or (family == "granite_20b_fc" and not is_single):
            continue  # its calls have no end
        if family in ("gemma4", "functiongemma") and "-" in json.dumps(case["calls"]):
            continue  # transformers raises at a key such as Content-Type
        try:
            calls, said = oracle_calls(parse_response, TEMPLATES[family], case["tools"], text)
        except ValueError as error:
            if "unknown content parser 'python-call-list'" in str(error):
                pytest.skip("this version of transformers does not read lists in Python")
            raise
        answer = own(TEMPLATES[family], case["tools"], [text])
        assert [call["name"] for call in calls] == answer.names
        for ours, theirs in zip(answer.calls, calls, strict=True):
            assert is_same(ours["arguments"], theirs["arguments"]), text
        # transformers loses the text if white space stands between two calls
        assert said == answer.text.strip() or not is_single
        read += 1
    assert read > 90


@pytest.mark.parametrize("family", REASONING)
def test_reasoning_is_what_transformers_reads(family, parse_response):
    for thought, answer in [("hm", "Hi"), ("a\n\nb <c>", "1 < 2"), ("", "Hi"), ("so", "")]:
        text = test_reasoning.SYNTAXES[family].format(thought=thought, answer=answer)
        message = parse_response(text, REASONING[family], prefix="")
        found = message.get("thinking", "")
        found = "".join(found) if isinstance(found, list) else found
        assert split(reasoning_family(name_of(REASONING[family]))(), [text]) == (found, answer)
        if "{answer}<" not in test_reasoning.SYNTAXES[family] or family == "cohere":
            assert message.get("content", "") == answer


@pytest.mark.parametrize(("gap", "kept"), [("", "\n  x = 1\n\n"), (r"\n?", "  x = 1\n")])
@pytest.mark.parametrize("strips", [False, True])
def test_white_space_around_a_value_is_what_the_pattern_says(gap, kept, strips, parse_response):
    tag = rf"<parameter=(?P<key>\w+)>{gap}(?P<value>.*?){gap}</parameter>"
    template = elements(
        r"<tool_call><function=(?P<name>\w+)>", r"</function></tool_call>", tag, strings=True
    )
    if strips:
        args = template["fields"]["tool_calls"]["content_args"]
        args["value_parser"], kept = {"name": "text"}, "x = 1"
    text = "<tool_call><function=f><parameter=a>\n  x = 1\n\n</parameter></function></tool_call>"
    tools = {"f": {"type": "object", "properties": {"a": {"type": "string"}}}}
    for at in range(len(text)):
        found = own(template, tools, [text[:at], text[at:]])
        assert found.calls == [{"name": "f", "arguments": {"a": kept}}]
    assert oracle_calls(parse_response, template, tools, text)[0] == found.calls


# Marks of published templates: of TRL at f2cd5771, of transformers 5.24.0 (cli/serving and the
# conversion of Muse Glimmer's checkpoint), and of its tests at 0d7e95d9. A sample, or why not.
TAG = r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"
QWEN_CALL = (
    "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<parameter=n>\n1\n</parameter>\n"
    "</function>\n</tool_call>"
)
HERMES_CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "x", "n": 1}}\n</tool_call>'
GLM_PAIR = "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n"
ATTRIBUTES = r'<atem:invoke\b[^>]*?\bname="(?P<name>[^"]+)">'
PUBLISHED = {
    "transformers qwen2": (
        objects(None, "</tool_call>", open_pattern=r"\s*<tool_call>"),
        HERMES_CALL,
    ),
    "transformers qwen3_5": (
        elements(
            r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>", r"</function>\s*</tool_call>", TAG
        ),
        QWEN_CALL,
    ),
    "transformers gemma4": (
        gemma(r"<\|tool_call>call:(?P<name>\w+)", r"<tool_call\|>", '<|"|>'),
        '<|tool_call>call:f{a:<|"|>x<|"|>,n:1}<tool_call|>',
    ),
    "transformers tests cohere": (
        listed("<|START_ACTION|>", "<|END_ACTION|>", "tool_name", "parameters"),
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": '
        '{"a": "x", "n": 1}}\n]<|END_ACTION|>',
    ),
    "trl qwen3": (
        objects("<tool_call>", None, close_pattern=r"</tool_call>\s*"),
        HERMES_CALL,
    ),
    "trl qwen3_5": (
        elements(r"<tool_call>\s*<function=(?P<name>[^\n>]+)>", r"</tool_call>\s*", TAG),
        QWEN_CALL,
    ),
    "trl glm4moe": (
        elements(
            r"<tool_call>(?P<name>\S+)\n?",
            r"</tool_call>\s*",
            r"<arg_key>(?P<key>[^<]+)</arg_key>\s*\n<arg_value>(?P<value>.*?)</arg_value>",
        ),
        f"<tool_call>f\n{GLM_PAIR.format('a', 'x')}{GLM_PAIR.format('n', 1)}</tool_call>",
    ),
    "trl llama3": (
        named(r'\{"name":\s*"(?P<name>[^"]+)",\s*"parameters":\s*', r"\}<\|eot_id\|>\s*"),
        None,
    ),
    "trl gptoss": (
        named(
            r"to=functions\.(?P<name>\S+?)<\|channel\|>commentary\s+json<\|message\|>",
            r"<\|call\|>\s*",
        ),
        None,
    ),
    "trl nemotron_3": (
        thoughts(None, None, open_pattern=r"(?=[\s\S]*?</think>)", close_pattern=r"</think>\s*"),
        None,
    ),
    "transformers tests ernie": (
        thoughts(None, "</think>", open_pattern=r"(?:^|<think>\s*)"),
        None,
    ),
    "transformers tests inkling": (
        objects(
            None,
            "<|end_message|>",
            open_pattern=r"(?:<\|message_model\|>)?[^<]*<\|content_invoke_tool_json\|>",
        ),
        None,
    ),
    "muse glimmer": (
        elements(
            ATTRIBUTES,
            "</atem:invoke>",
            r'<atem:parameter\b[^>]*?\bname="(?P<key>[^"]+)"[^>]*?>(?P<value>.*?)</atem:parameter>',
        ),
        None,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates(name, parse_response):
    template, text = PUBLISHED[name]
    if text is None:
        with pytest.raises(Refused):
            described(json.dumps(template))
        return
    tools = {"f": {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}}
    expected = [{"name": "f", "arguments": {"a": "x", "n": 1}}]
    for at in range(len(text)):
        assert own(template, tools, [text[:at], text[at:]]).calls == expected
    assert own(template, tools, [f"{text}\n{text}"]).calls == expected * 2
    assert oracle_calls(parse_response, template, tools, text)[0] == expected


SPECIALS = {1: b"<|im_end|>", 2: b"<|think|>", 3: b"<|/think|>"}
SHOWS_HERMES = "{% if tools %}<tool_call>{% endif %}<think>"


def card(template: dict | str, chat_template: str = SHOWS_HERMES, **policy: str):
    text = template if isinstance(template, str) else json.dumps(template)
    facts = replace(
        FACTS, chat_template=chat_template, response_template=text, special_tokens=SPECIALS
    )
    return replace(CARD, facts=facts, **policy)


CALLS, THOUGHT = objects("<a>", "</a>"), thoughts("<|think|>", "<|/think|>")
BOTH = {**THOUGHT, "fields": {**THOUGHT["fields"], **CALLS["fields"]}}
ENDED = {**CALLS, "fields": {**CALLS["fields"], "content": {"close": "<|im_end|>"}}}
TWO_ENDS = objects("<a>", ["</a>", "<|im_end|>"])
PLAIN_ENDS = objects("<a>", ["</a>", "</b>"])
PLAIN_END = {**CALLS, "fields": {**CALLS["fields"], "content": {"close": "</answer>"}}}
OWN = "response_template"


@pytest.mark.parametrize(
    ("of", "tools", "reasoning", "is_refused"),
    [
        (card(BOTH), OWN, OWN, False),
        (card(CALLS), OWN, "qwen3", False),
        (card(THOUGHT), "hermes", OWN, False),
        (card(ENDED), OWN, "qwen3", False),
        (card(PLAIN_END), "hermes", "qwen3", True),
        (card(TWO_ENDS), OWN, "qwen3", False),
        (card(PLAIN_ENDS), "hermes", "qwen3", True),
        (card(BOTH, tool_parser="mistral"), "mistral", OWN, False),
        (card(BOTH, reasoning_parser="none"), OWN, None, False),
        (card(BOTH, tool_parser="none", reasoning_parser="kimi"), None, "kimi", False),
        (card(BOTH, "{{ messages }}"), "generic", OWN, False),
        (card({"fields": {}}), "hermes", "qwen3", True),
        (card("["), "hermes", "qwen3", True),
    ],
)
def test_the_operators_word_stands_above_the_template_and_it_above_the_family(
    of, tools, reasoning, is_refused
):
    syntax = syntax_of(of)
    assert (public_name(syntax.tools), public_name(syntax.reasoning)) == (tools, reasoning)
    assert (syntax.refused is not None) == is_refused


def test_a_thought_between_special_tokens_may_stand_anywhere():
    """Text never has special tokens; of other marks it may."""
    text = "Hello <|think|>hm<|/think|>there <think>no</think>"
    assert split(syntax_of(card(THOUGHT)).reasoning_parser(), [text]) == (
        "hm",
        "Hello there <think>no</think>",
    )
    plain = syntax_of(card(thoughts("<think>", "</think>")))
    assert split(plain.reasoning_parser(), [text])[0] == ""


DEEP = '{"fields": ' + '{"a": ' * 1_500 + "1" + "}" * 1_500 + "}"
HOSTILE = {
    "huge": json.dumps(objects("<a>", "</a>")) + " " * 20_000,
    "deep": DEEP,
    "a list": "[]",
    "a number": "1",
    "no fields": "{}",
    "version": json.dumps({**CALLS, "version": 2}),
    "an unknown key": json.dumps({**CALLS, "x": 1}),
    "an unknown field": json.dumps({"fields": {"images": {"open": "<a>"}}}),
    "of another type": json.dumps({"fields": {"content": {"open": 1}}}),
    "no mark": json.dumps(objects("", "</a>")),
    "a mark of text": json.dumps(objects("{", "}")),
    "a long mark": json.dumps(objects(f"<{'a' * 200}>", "</a>")),
    "many marks": json.dumps(thoughts([f"<{at}>" for at in range(99)], "</a>")),
    "a mark in a mark": json.dumps(thoughts(["<a>", "<b><a><c>"], "</a>")),
    "our placeholder": json.dumps(objects("<a…>", "</a>")),
    "marks twice": json.dumps(objects("<a>", "</a>", open_pattern="<a>")),
    "nested repetition": json.dumps(named(r"<a (?P<name>(\w+)+)>", "</a>")),
    "repetition": json.dumps(named(r"(?:a|aa)+<a (?P<name>\w+)>", "</a>")),
    "many alternatives": json.dumps(named("(?:<b>)?" * 40 + r"<a (?P<name>\w+)>", "</a>")),
    "many groups": json.dumps(named("(?:" * 400, "</a>")),
    "many parts": json.dumps(named(r"a\s*" * 250 + r"<a (?P<name>\w+)>", "</a>")),
    "many classes": json.dumps(named("(?P<name>" + "[^a]" * 250 + "!", "</a>")),
    "a long pattern": json.dumps(named("a" * 9_000 + r"<a (?P<name>\w+)>", "</a>")),
    "a look ahead": json.dumps(named(r"(?=<a>)<a (?P<name>\w+)>", "</a>")),
    "a back reference": json.dumps(named(r"<a (?P<name>\w+)(?P=name)>", "</a>")),
    "the start": json.dumps(thoughts("", "</a>", open_pattern="^")),
    "no tags": json.dumps(elements(r"<a (?P<name>\w+)>", "</a>", "(?P<key>.+)=(?P<value>.+)")),
    "a class of its own": json.dumps(elements(r"<a (?P<name>\w+)>", "</a>", ".*")),
    "another transform": json.dumps(objects("<a>", "</a>", transform={"function": "{x}"})),
    "another dialect": json.dumps(objects("<a>", "</a>", content_args={"unquoted_keys": True})),
    "another parser": json.dumps(objects("<a>", "</a>", content="kv-lines")),
    "a joint": json.dumps(thoughts("<a>", "</a>", repeats=True, join="\n")),
    "two thoughts": json.dumps({"fields": {"thinking": {}, "reasoning_content": {}}}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_this_reader_cannot_do_is_refused_at_no_cost(kind):
    start = time.thread_time()
    with pytest.raises(Refused) as caught:
        described(HOSTILE[kind])
    assert time.thread_time() - start < 0.02
    assert 0 < len(caught.value.args[0]) < 300
    assert syntax_of(card(HOSTILE[kind])).refused == caught.value.args[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
)
SOME = [*TEMPLATES.values(), *REASONING.values()]


@given(st.sampled_from(SOME), st.data(), JSON | st.sampled_from(["<a>", r"\s*", "(?:<", "a|b"]))
def test_a_damaged_template_is_refused_or_read_alike_for_every_cut(template, data, value):
    damaged = json.loads(json.dumps(template))
    place = data.draw(st.sampled_from([damaged, *damaged["fields"].values()]))
    place[data.draw(st.sampled_from([*place, "open", "close_pattern", "content_args"]))] = value
    try:
        found = described(json.dumps(damaged))
    except Refused:
        return
    marks = [*(found.tools.marks() if found.tools else ()), "{", '{"name": "f"', "f", "}", "\n"]
    marks += found.reasoning.marks() if found.reasoning else ()
    text = "".join(data.draw(st.lists(st.sampled_from(marks), max_size=9)))
    pieces = data.draw(cuts(text))
    for kind in filter(None, (found.tools, found.reasoning)):
        parsers = [kind() for _ in range(2)]
        for one in parsers:
            one.new_id = lambda name, index: f"id{index}"
        whole, cut = ([text], pieces)
        if kind is found.reasoning:
            assert split(parsers[0], whole) == split(parsers[1], cut)
        else:
            assert answered(parsers[0], whole) == answered(parsers[1], cut)
