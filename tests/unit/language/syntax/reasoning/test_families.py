"""Every family: reasoning and text are separated, however the text is cut."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.domain.events import ReasoningDelta, TextDelta
from proxy.language.syntax.reasoning.families import FAMILIES
from tests.fixtures.examples import examples
from tests.strategies import cuts

SYNTAXES = {
    "granite": "Here is my thought process:{thought}\nHere is my response:\n{answer}",
    "harmony": "<|channel|>analysis<|message|>{thought}<|end|>"
    "<|start|>assistant<|channel|>final<|message|>{answer}<|return|>",
    "mistral": "[THINK]{thought}[/THINK]{answer}",
    "gemma4": "<|channel>thought\n{thought}<channel|>{answer}",
    **dict.fromkeys(
        ("deepseek_r1", "qwen3", "glm45", "kimi", "nemotron", "minimax"),
        "<think>\n{thought}\n</think>\n\n{answer}",
    ),
}
PROMPT_ENDS = {
    "granite": "<think>\n",
    "harmony": "<|start|>assistant<|channel|>analysis<|message|>",
    "mistral": "[THINK]",
    "gemma4": "<|channel>thought\n",
}
TOOL_START = "<tool_call>"
WORDS = st.text(alphabet="aé <>|[]/\nH", max_size=30).map(str.strip)
every_family = pytest.mark.parametrize("family", sorted(FAMILIES))


def split(family: str, pieces: list[str], **options) -> tuple[str, str]:
    parser = FAMILIES[family].parser_type(**options)
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
    assert FAMILIES[family].parser_type.opens_in(f"…{prompt_end}")
    assert not FAMILIES[family].parser_type.opens_in("<|im_start|>assistant\n")
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


@pytest.mark.parametrize("tag", ["<think>", "Here is my thought process:"])
def test_a_tag_inside_the_answer_is_text(tag):
    family = "qwen3" if tag == "<think>" else "granite"
    assert split(family, [f"The tag {tag} opens"]) == ("", f"The tag {tag} opens")


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
    parser = FAMILIES[family].parser_type.behind(prompt, begun)
    assert parser.is_thinking == bool(expected[0])
    events = [event for char in rest for event in parser.push(char)] + parser.flush()
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert (thought, text) == expected


def test_reasoning_streams_as_it_is_written():
    parser = FAMILIES["qwen3"].parser_type()
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


@every_family
def test_cost_per_character_is_flat(family):
    def cost(size: int) -> float:
        text = SYNTAXES[family].format(thought="a < b\n " * (size // 14), answer="yes " * size)
        pieces = [text[at : at + 16] for at in range(0, len(text), 16)]
        start = time.process_time()
        split(family, pieces)
        return (time.process_time() - start) / len(text)

    small = min(cost(1_000) for _ in range(5))
    assert min(cost(50_000) for _ in range(3)) < 3 * small
