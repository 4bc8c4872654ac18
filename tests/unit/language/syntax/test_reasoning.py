"""Every family: reasoning and text are separated, however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.domain.events import ReasoningDelta, TextDelta
from proxy.language.syntax import reasoning
from proxy.language.syntax.families import REASONING_FAMILIES as FAMILIES
from proxy.language.syntax.families import TOOL_FAMILIES as TOOLS
from tests.fixtures.examples import examples
from tests.strategies import cuts
from tests.unit.language.syntax.folding import Answer, parser_of
from tests.unit.language.syntax.syntaxes import SYNTAXES as CALL_SYNTAXES

SYNTAXES = {
    "granite": "Here is my thought process:{thought}\nHere is my response:\n{answer}",
    "harmony": "<|channel|>analysis<|message|>{thought}<|end|>"
    "<|start|>assistant<|channel|>final<|message|>{answer}<|return|>",
    "muse_glimmer": " to=self<|message|>{thought}<|eom|>"
    "<|start|>assistant to=user<|message|>{answer}<|eot|>",
    "mistral": "[THINK]{thought}[/THINK]{answer}",
    "gemma4": "<|channel>thought\n{thought}<channel|>{answer}",
    "cohere": "<|START_THINKING|>{thought}<|END_THINKING|><|START_TEXT|>{answer}<|END_TEXT|>",
    "kimi_k3": "<|open|>think<|sep|>{thought}<|close|>think<|sep|><|open|>response<|sep|>"
    "{answer}<|close|>response<|sep|><|close|>message<|sep|>",
    "minimax_m3": "<mm:think>{thought}</mm:think>{answer}",
    "seed_oss": "<seed:think>{thought}</seed:think>{answer}",
    "hy3": "<think:opensource>{thought}</think:opensource>{answer}",
    "apertus": "<|inner_prefix|>{thought}<|inner_suffix|>{answer}",
    "solar_open": "<|think|>{thought}<|end|><|begin|>assistant<|content|>{answer}<|end|>",
    **dict.fromkeys(
        ("deepseek_r1", "qwen3", "glm45", "kimi", "nemotron", "minimax"),
        "<think>\n{thought}\n</think>\n\n{answer}",
    ),
}
PROMPT_ENDS = {
    "granite": "<think>\n",
    "harmony": "<|start|>assistant<|channel|>analysis<|message|>",
    "muse_glimmer": " to=self<|message|>",
    "mistral": "[THINK]",
    "gemma4": "<|channel>thought\n",
    "cohere": "<|START_THINKING|>",
    "kimi_k3": "<|open|>think<|sep|>",
    "minimax_m3": "<mm:think>",
    "seed_oss": "<seed:think>",
    "hy3": "<think:opensource>",
    "apertus": "<|inner_prefix|>",
    "solar_open": "<|think|>",
}
TOOL_START = "<tool_call>"
WORDS = st.text(alphabet="aé <>|[]/\nH", max_size=30).map(str.strip)
every_family = pytest.mark.parametrize("family", sorted(FAMILIES))


def split(family: str, pieces: list[str], **options) -> tuple[str, str]:
    parser = FAMILIES[family](**options)
    events = [event for piece in pieces for event in parser.push(piece)] + parser.flush()
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    return thought, "".join(event.text for event in events if isinstance(event, TextDelta))


@every_family
@settings(max_examples=examples(40))
@given(data=st.data(), thought=WORDS, answer=WORDS)
def test_reasoning_and_text_are_separated_however_the_text_is_cut(family, data, thought, answer):
    text = SYNTAXES[family].format(thought=thought, answer=answer)
    assert split(family, data.draw(cuts(text))) == (thought, answer)
    assert split(family, list(text)) == (thought, answer)


@every_family
@settings(max_examples=examples(20))
@given(data=st.data(), thought=WORDS, answer=WORDS)
def test_reasoning_that_the_prompt_opened_has_no_start_tag(family, data, thought, answer):
    prompt_end = PROMPT_ENDS.get(family, "<think>\n")
    assert FAMILIES[family].opens_in(f"…{prompt_end}")
    assert not FAMILIES[family].opens_in("<|im_start|>assistant\n")
    text = SYNTAXES[family].format(thought=thought, answer=answer)
    if family == "granite":
        text = text.removeprefix("Here is my thought process:")
    text = text.removeprefix(prompt_end.strip("\n")).removeprefix("\n")
    assert split(family, data.draw(cuts(text)), is_inside=True) == (thought, answer)


@every_family
@given(data=st.data())
@settings(max_examples=examples(20))
def test_unclosed_reasoning_ends_with_the_answer(family, data):
    text = SYNTAXES[family].partition("{answer}")[0].partition("{thought}")[0] + "so be it"
    assert split(family, data.draw(cuts(text))) == ("so be it", "")


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"harmony"}))
@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_call_ends_reasoning_that_was_left_open(family, data):
    text = SYNTAXES[family].partition("{thought}")[0] + "I call\n" + TOOL_START + "{}"
    pieces = data.draw(cuts(text))
    assert split(family, pieces, tool_starts=[TOOL_START]) == ("I call", TOOL_START + "{}")


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"harmony"}))
@given(data=st.data())
@settings(max_examples=examples(20))
def test_an_answer_without_reasoning_does_not_change(family, data):
    text = "\n Hello <b>there</b>, </thin"
    assert split(family, data.draw(cuts(text))) == ("", text)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"harmony", "kimi_k3", "solar_open"}))
@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_second_thought_follows_the_first(family, data):
    first = SYNTAXES[family].partition("{answer}")[0].format(thought="one")
    if family == "muse_glimmer":
        first = first.partition("<|start|>")[0] + "<|start|>assistant"
    draft = f"two {TOOL_START}{{}}"
    text = first + SYNTAXES[family].format(thought=draft, answer="Hi")
    pieces = data.draw(cuts(text))
    assert split(family, pieces, tool_starts=[TOOL_START]) == (f"one{draft}", "Hi")


def test_no_thought_follows_one_that_was_ended_in_the_models_place():
    """Else a model that begins another one would be ended over and over."""
    parser = FAMILIES["qwen3"]()
    parser.push("<think>one")
    parser.may_think_again = False
    found = parser.push("</think>\n\n") + parser.push("<think>two") + parser.flush()
    assert found == [TextDelta("<think>two")]


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"harmony"}))
@settings(max_examples=examples(20))
@given(data=st.data(), words=WORDS)
def test_an_end_in_backticks_is_a_part_of_the_thought(family, data, words):
    thought = f"so `{FAMILIES[family].ends[0]}` ends it. {words}".strip()
    text = SYNTAXES[family].format(thought=thought, answer="Hi")
    assert split(family, data.draw(cuts(text))) == (thought, "Hi")


# reasoning that the prompt may have left out

HEADED = {"harmony", "muse_glimmer"}  # each message has a header, so none is left out
LOST = sorted(set(FAMILIES) - HEADED)
every_tagged_family = pytest.mark.parametrize("family", LOST)


def unopened(family: str) -> str:
    """An answer of the family without what opens its reasoning."""
    opening = "Here is my thought process:" if family == "granite" else ""
    opening = opening or PROMPT_ENDS.get(family, "<think>\n")
    text = SYNTAXES[family].removeprefix(opening)
    return text.replace("\nHere is my response:\n", "</think>")


@every_tagged_family
@settings(max_examples=examples(30))
@given(data=st.data(), thought=WORDS, answer=WORDS)
def test_reasoning_that_nothing_opened_is_found_by_its_end(family, data, thought, answer):
    text = unopened(family).format(thought=thought, answer=answer)
    options = {"may_be_inside": True, "tool_starts": [TOOL_START]}
    assert split(family, data.draw(cuts(text)), **options) == (thought, answer)
    assert split(family, list(text), **options) == (thought, answer)
    opened = SYNTAXES[family].format(thought=thought, answer=answer)
    assert split(family, data.draw(cuts(opened)), **options) == (thought, answer)


@every_tagged_family
@settings(max_examples=examples(30))
@given(data=st.data(), words=st.lists(WORDS, max_size=3))
def test_an_answer_without_an_end_of_reasoning_is_text(family, data, words):
    tag = FAMILIES[family].tags()[0]
    text = "\n".join([*words, f"Use `{tag}` here"])
    assert split(family, data.draw(cuts(text)), may_be_inside=True) == ("", text)


@every_tagged_family
@pytest.mark.parametrize("size", [1, 5_000])
def test_behind_a_bound_the_rest_is_text_and_streams(family, size):
    most, tag = reasoning.MOST_UNDECIDED, FAMILIES[family].tags()[0]
    text = "b" * (most - 1)
    parser = FAMILIES[family](may_be_inside=True)
    for at in range(0, len(text), size):
        assert parser.push(text[at : at + size]) == []
    assert parser.is_undecided
    assert parser.push("cd") == [TextDelta(text + "cd")]
    assert not parser.is_undecided
    assert parser.push("e") == [TextDelta("e")]
    assert parser.push(f"{tag}f") + parser.flush() == [TextDelta("f")]


@pytest.mark.parametrize(
    ("family", "prompt", "usual", "expected"),
    [
        ("qwen3", "result<end>", "<think>\n", True),
        ("qwen3", "result<end>", "<bot>", False),
        ("qwen3", "<think>\n", "<think>", False),
        ("qwen3", "<think>\n\n</think>\n\n", "<think>\n", False),
        ("qwen3", "</think>", "<think>", False),
        ("minimax_m3", "]~b]ai\n</mm:think>", "]~b]ai\n<mm:think>", False),
        ("kimi_k3", "<|open|>response<|sep|>", "<|open|>think<|sep|>", False),
        ("kimi_k3", "<|open|>message<|sep|>", "<|open|>think<|sep|>", True),
        ("gemma4", "<|turn>model\n", "<|channel>thought\n", True),
        ("harmony", "<|start|>assistant", "<|start|>assistant", False),
    ],
)
def test_a_prompt_leaves_out_the_thought_that_one_for_a_user_opens(family, prompt, usual, expected):
    assert FAMILIES[family].is_left_out(prompt, usual) is expected


@pytest.mark.parametrize("tag", ["<think>", "Here is my thought process:"])
def test_a_tag_inside_the_answer_is_text(tag):
    family = "qwen3" if tag == "<think>" else "granite"
    assert split(family, [f"The tag {tag} opens"]) == ("", f"The tag {tag} opens")


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("minimax_m3", "</mm:think>Hi"),
        ("cohere", "<|START_RESPONSE|>Hi<|END_RESPONSE|>"),
        ("kimi_k3", "<|open|>response<|sep|>Hi<|close|>response<|sep|><|close|>message<|sep|>"),
    ],
)
def test_marks_around_an_answer_without_reasoning_are_no_text(family, text):
    assert split(family, [text]) == split(family, list(text)) == ("", "Hi")


def test_white_space_before_a_thought_is_dropped_however_it_is_cut():
    for pieces in (["  so"], [" ", " ", "so"]):
        assert split("harmony", pieces, is_inside=True) == ("so", "")


@pytest.mark.parametrize(
    ("family", "before", "begun", "rest", "expected"),
    [
        (
            "qwen3",
            "",
            "<think>\nOkay, the user",
            " wants X.</think>Answer",
            (" wants X.", "Answer"),
        ),
        ("qwen3", "", "<think>\nOkay</thi", "so</think>!", ("so", "!")),
        ("qwen3", "<think>\n", "Okay ", "so</think>!", ("so", "!")),
        ("qwen3", "<think>\n", "", "so</think>!", ("so", "!")),
        ("qwen3", "", "<think>", "\nso</think>!", ("so", "!")),
        ("qwen3", "<think>\n", "<think>", "\nso</think>!", ("so", "!")),
        ("qwen3", "", "<think>so</think>It is", " not", ("", " not")),
        ("qwen3", "", "It is", "<think>", ("", "<think>")),
        ("granite", "", "Here is my thought process: so", " it is", (" it is", "")),
        ("mistral", "", "[THINK]a[/THINK]b[THINK]c", " d[/THINK]e", (" d", "e")),
        ("mistral", "", "The list is [", "1]", ("", "1]")),
        ("harmony", "<|channel|>final<|message|>", "It", " is", ("", " is")),
    ],
)
def test_an_answer_continues_where_it_was_begun(family, before, begun, rest, expected):
    prompt = f"<think> is a tag{before}{begun}"
    parser = FAMILIES[family].behind(prompt, begun)
    assert parser.is_thinking == bool(expected[0])
    events = [event for char in rest for event in parser.push(char)] + parser.flush()
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert (thought, text) == expected


def test_reasoning_streams_as_it_is_written():
    parser = FAMILIES["qwen3"]()
    assert parser.push("<think>\nso") == [ReasoningDelta("so")]
    assert parser.push(" it is </th") == [ReasoningDelta(" it is")]
    assert parser.push("ink>\n\nHello") == [TextDelta("Hello")]


def test_a_harmony_call_reaches_the_tool_parser_unchanged():
    call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    text = "<|channel|>analysis<|message|>I call<|end|><|start|>assistant" + call
    found = split("harmony", [text], tool_starts=["<|channel|>"])
    assert found == ("I call", "<|start|>assistant" + call)


@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_harmony_call_without_a_tool_parser_is_text_without_its_marks(data):
    head = "<|channel|>commentary to=functions.f <|constrain|>json"
    text = f"{head}<|message|>{{}}<|call|><|start|>assistant{head}"
    assert split("harmony", data.draw(cuts(text))) == ("", "{}")


# reasoning, then calls: these are read outside reasoning only

CALLS = [{"name": "f", "arguments": {"city": "Paris"}}, {"name": "f", "arguments": {}}]
SCHEMAS = {"f": {"properties": {"city": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" to=user<|message|>Hi<|eot|>", ("", "Hi")),
        (" to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b<|eom|>", ("ab", "")),
        ("to=self is a header", ("", "to=self is a header")),
        (" to=user Hi", ("", "Hi")),
        (
            " to=user<|message|>Hi <|eom|><|start|>assistant to=user<|message|>again",
            ("", "Hi again"),
        ),
        (" to=selfish<|message|>Hi", ("", "Hi")),
        (" to=self<|message|>so<|eom|><|start|>assistant Hi", ("so", "Hi")),
        (" to=self<|message|>so<|eom|>Hi", ("so", "Hi")),
        (" to=user<|message|>Write `<|eom|>` there", ("", "Write `<|eom|>` there")),
    ],
)
def test_headers_of_muse_glimmer(text, expected):
    for pieces in ([text], list(text)):
        assert split("muse_glimmer", pieces) == expected


HARMONY_CHAIN = "<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant{calls}"


def chained(reasoning: str, tools: str, text: str) -> tuple[str, Answer]:
    starts = TOOLS[tools].clear_starts()
    thinker = FAMILIES[reasoning](tool_starts=starts)
    parser, thought, answer = parser_of(tools, SCHEMAS), "", Answer()
    for events in (*map(thinker.push, text), thinker.flush()):
        for event in events:
            if isinstance(event, ReasoningDelta):
                thought += event.text
            else:
                for part in parser.push(event.text):
                    answer.add(part)
    for part in parser.flush():
        answer.add(part)
    return thought, answer


@pytest.mark.parametrize(
    ("reasoning", "tools", "syntax"),
    [
        ("qwen3", "hermes", "<think>\n{thought}\n</think>\n\n{calls}"),
        ("qwen3", "qwen3_coder", "<think>\n{thought}\n</think>\n\n{calls}"),
        ("deepseek_r1", "deepseek_v3", "<think>{thought}</think>{calls}"),
        ("glm45", "glm45", "<think>{thought}</think>\n{calls}"),
        ("kimi", "kimi_k2", "<think>{thought}{calls}"),
        ("minimax", "minimax_m2", "<think>\n{thought}\n</think>\n{calls}"),
        ("mistral", "mistral", "[THINK]{thought}[/THINK]{calls}"),
        ("gemma4", "gemma4", "<|channel>thought\n{thought}<channel|>{calls}"),
        ("cohere", "cohere", "<|START_THINKING|>{thought}<|END_THINKING|>{calls}"),
        (
            "kimi_k3",
            "kimi_k3",
            "<|open|>think<|sep|>{thought}<|close|>think<|sep|><|open|>response<|sep|>"
            "<|close|>response<|sep|>{calls}<|close|>message<|sep|>",
        ),
        ("minimax_m3", "minimax_m3", "<mm:think>{thought}</mm:think>{calls}"),
        ("harmony", "harmony", HARMONY_CHAIN),
        (
            "muse_glimmer",
            "muse_glimmer",
            " to=self<|message|>{thought}<|eom|><|start|>assistant to=f<|message|>{calls}<|eom|>"
            "<|start|>assistant to=user<|message|><|eot|>",
        ),
    ],
)
def test_reasoning_and_calls_are_separated(reasoning, tools, syntax):
    text = syntax.format(thought="I need f", calls=CALL_SYNTAXES[tools](CALLS))
    thought, answer = chained(reasoning, tools, text)
    assert (thought, answer.text, answer.calls) == ("I need f", "", CALLS)


@pytest.mark.parametrize(
    ("tools", "word"), [("xlam", "```json\n{}\n```"), ("phi4_mini_json", "functools.cache")]
)
def test_a_start_that_may_be_text_does_not_end_a_thought(tools, word):
    calls = CALL_SYNTAXES[tools](CALLS)
    thought, answer = chained("qwen3", tools, f"<think>\nso {word} then\n</think>\n\n{calls}")
    assert (thought, answer.text, answer.calls) == (f"so {word} then", "", CALLS)


def test_a_call_within_reasoning_is_not_made():
    text = '<think>I could write [TOOL_CALLS]f{"city": "x"}</think>No.'
    thought, answer = chained("qwen3", "hermes", text)
    assert "[TOOL_CALLS]" in thought
    assert (answer.text, answer.names) == ("No.", [])
