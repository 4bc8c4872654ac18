"""All families: a call in a thought or in code is text, and a call outside both is a call, however
the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.domain.events import ReasoningDelta, TextDelta, ToolCallStarted
from proxy.domain.output import FinishReason
from proxy.language.syntax import reasoning
from proxy.language.syntax.families import REASONING_FAMILIES as REASONING
from proxy.language.syntax.families import TOOL_FAMILIES as TOOLS
from proxy.language.syntax.output_parser import OutputParser
from tests.fixtures.examples import examples
from tests.strategies import cuts
from tests.unit.language.syntax.folding import Answer, parser_of
from tests.unit.language.syntax.syntaxes import SYNTAXES as CALLS
from tests.unit.language.syntax.test_reasoning import HEADED, unopened
from tests.unit.language.syntax.test_reasoning import SYNTAXES as THOUGHTS

SCHEMAS = {
    name: {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}} for name in "fg"
}
# Without a mark of its own, a call in a thought or in an open fence is always text.
BARE = {"json_list", "llama3_json", "llama4_json", "phi4_mini_json", "pythonic", "xlam"}
WORDS = st.text(alphabet="aé .\n\"'{}[", max_size=12).map(lambda text: f"So {text.strip()} then")
VALUES = st.fixed_dictionaries(
    {"a": st.sampled_from(["x", "use `y` it`s", "```\nz\n```", "a\n\nb"])}
)
FENCES = [
    "```xml\n{}\n```\n",
    "~~~\n{}\n~~~\n",
    "1. so\n   ```\n   {}\n   ```\n",
    "````md\n```\n{}\n````\n",
]
# each family of reasoning with one of calls, each of calls with one of reasoning
PAIRS = [
    *((family, tools) for family in sorted(REASONING) for tools in ("hermes", "harmony")),
    *(("qwen3", tools) for tools in sorted(TOOLS)),
    *(("harmony", tools) for tools in sorted(TOOLS)),
]
every_pair = pytest.mark.parametrize(("family", "tools"), PAIRS)
every_family = pytest.mark.parametrize("tools", sorted(TOOLS))
slow = settings(max_examples=examples(8), suppress_health_check=list(HealthCheck), deadline=None)


def read(
    family: str | None,
    tools: str,
    pieces: list[str],
    *,
    ended: bool = True,
    most=None,
    may_be_inside: bool = False,
):
    """The thought, the rest of the answer, and its finish reason."""
    reader, starts, thinker = parser_of(tools, SCHEMAS), TOOLS[tools].clear_starts(), None
    if family is not None:
        thinker = REASONING[family](may_be_inside=may_be_inside, tool_starts=starts)
        reader.strays = REASONING[family].tags()
    parser = OutputParser(thinker, reader, most_calls=most)
    thought, answer = "", Answer()
    events = [event for piece in pieces for event in parser.push(piece)]
    for event in events + parser.flush(has_ended=ended):
        if isinstance(event, ReasoningDelta):
            thought += event.text
        else:
            answer.add(event)
    finish = FinishReason.STOP if ended else FinishReason.LENGTH
    return thought, answer, parser.reason(finish, is_named=False)


def written(tools: str, arguments: dict, name: str = "f") -> str:
    return CALLS[tools]([{"name": name, "arguments": arguments}])


def in_thought(family: str, tools: str, thought: str, answer: str) -> str:
    """An answer of text, or of calls, whose channel is another one in some families."""
    text = THOUGHTS[family].format(thought=thought, answer="{answer}")
    if family == "harmony" and tools == "harmony":
        text = text.partition("<|channel|>final")[0] + "{answer}"
    return text.replace("{answer}", answer)


@every_pair
@slow
@given(data=st.data())
def test_a_draft_in_a_thought_is_never_made(family, tools, data):
    arguments = data.draw(VALUES)
    call = written(tools, arguments)
    mark = data.draw(st.sampled_from([*TOOLS[tools].clear_starts()[:1], ""]))
    parts = [f"Like {call} but the user said no.", f"I could write {mark} here."]
    thought = " ".join([data.draw(WORDS), *data.draw(st.permutations(parts)), data.draw(WORDS)])
    is_made = data.draw(st.booleans())
    answer = written(tools, arguments, "g") if is_made else "I will not do it."
    if family == "harmony" and tools == "harmony" and not is_made:
        answer = "<|channel|>final<|message|>" + answer
    text = in_thought(family, tools, thought, answer)
    told, found, finish = read(family, tools, data.draw(cuts(text)))
    assert told == thought
    assert found.calls == ([{"name": "g", "arguments": arguments}] if is_made else [])
    assert found.text == ("" if is_made else "I will not do it.")
    assert finish is (FinishReason.TOOL_CALLS if is_made else FinishReason.STOP)
    assert read(family, tools, list(text)) == (told, found, finish)


@pytest.mark.parametrize(("family", "tools"), [pair for pair in PAIRS if pair[0] not in HEADED])
@slow
@given(data=st.data())
def test_a_draft_in_a_thought_that_nothing_opened_is_not_made(family, tools, data):
    call = written(tools, data.draw(VALUES))
    answer = call if data.draw(st.booleans()) else "I will not do it."
    thought = f"So {data.draw(WORDS)}\nLike {call} but the user said no."
    text = unopened(family).replace("{thought}", thought).replace("{answer}", answer)
    told, found, _ = read(family, tools, data.draw(cuts(text)), may_be_inside=True)
    assert (told, len(found.names)) == (thought, answer == call)
    assert found.text == ("" if answer == call else answer)
    # what nothing ends is no thought
    _, found, finish = read(family, tools, data.draw(cuts(f"So\n{call}")), may_be_inside=True)
    assert (len(found.names), finish) == (1, FinishReason.TOOL_CALLS)


@pytest.mark.parametrize(("family", "tools"), [pair for pair in PAIRS if pair[0] != "harmony"])
@pytest.mark.parametrize("before", ["", "{call}", "{mark}", "{call}{call}"])
@slow
@given(data=st.data())
def test_a_lone_end_of_a_thought_is_no_text_behind_calls_either(family, tools, before, data):
    call, tag = written(tools, {"a": "x"}), REASONING[family].tags()[0]
    marks = [mark for mark in TOOLS[tools].clear_starts() if mark.strip(".") == mark]
    before = before.replace("{call}", call).replace("{mark}", marks[0] if marks else "")
    text = f"I see. {before} so{tag}\nWell"
    _, found, _ = read(family, tools, data.draw(cuts(text)))
    assert tag not in found.text
    assert found.text.endswith("Well")


@pytest.mark.parametrize(("family", "tools"), [pair for pair in PAIRS if pair[1] not in BARE])
@slow
@given(data=st.data())
def test_a_whole_call_in_a_thought_that_never_ends_is_a_call(family, tools, data):
    arguments = data.draw(VALUES)
    call = written(tools, arguments)
    text = THOUGHTS[family].partition("{thought}")[0] + f"I call it\n{call}"
    pieces = data.draw(cuts(text))
    made = read(family, tools, pieces, most=1)
    assert (made[0], made[1].text, made[2]) == ("I call it", "", FinishReason.TOOL_CALLS)
    assert made[1].calls == [{"name": "f", "arguments": arguments}]
    # One that the token limit cut off was still thinking.
    cut = read(family, tools, pieces, ended=False)
    assert (cut[0], cut[1].names, cut[2]) == (f"I call it\n{call}", [], FinishReason.LENGTH)
    at = text.index("x" if arguments["a"] == "x" else arguments["a"][0], text.index(call))
    half = read(family, tools, [text[:at]])
    assert (half[1].names, half[2]) == ([], FinishReason.STOP)


@pytest.mark.parametrize(("family", "tools"), [pair for pair in PAIRS if pair[1] not in BARE])
@pytest.mark.parametrize("fence", FENCES)
def test_a_call_in_the_code_of_a_thought_that_never_ends_is_text(family, tools, fence):
    call = written(tools, {"a": "x"})
    begin = THOUGHTS[family].partition("{thought}")[0]
    if "```" in call and "```" in fence:
        return
    text = f"{begin}So\n{fence.replace('{}', call)}and so on"
    for pieces in ([text], list(text)):
        told, found, finish = read(family, tools, pieces)
        assert (found.names, finish) == ([], FinishReason.STOP)
        assert told == text.removeprefix(begin)
        assert read(family, tools, [*pieces, call])[1].names == ["f"]


@pytest.mark.parametrize(
    ("rest", "names"),
    [
        ("", ["f"]),
        ("\n", ["f"]),
        ("<|start|>assistant<|channel|>final<|message|>No.", []),
        ("<|start|>assistant<|channel|>analysis<|message|>No", []),
    ],
)
@pytest.mark.parametrize("begin", ["<|start|>assistant", ""])
def test_harmonys_end_may_be_that_of_the_last_call(rest, names, begin):
    call = f"{begin}<|channel|>commentary to=functions.f <|constrain|>json<|message|>{{}}"
    for words, expected in (("", names), (" \n", names), (" but no.", [])):
        text = f"<|channel|>analysis<|message|>I call{call}{words}<|end|>{rest}"
        for pieces in ([text], list(text)):
            told, found, _ = read("harmony", "harmony", pieces)
            assert found.names == expected
            assert told.startswith("I call")
            assert found.text.strip() == ("No." if "final" in rest else "")


def test_a_draft_does_not_end_the_answer():
    thinker = REASONING["qwen3"](tool_starts=TOOLS["hermes"].clear_starts())
    parser = OutputParser(thinker, parser_of("hermes", SCHEMAS), most_calls=1)
    events = parser.push(f"<think>Like {written('hermes', {'a': 'x'})} but")
    assert (events, parser.has_all, parser.is_thinking) == ([ReasoningDelta("Like")], False, True)
    events = parser.push(f" no.</think>{written('hermes', {'a': 'y'})}")
    assert parser.has_all
    assert [one for one in events if isinstance(one, ToolCallStarted)]


@pytest.mark.parametrize("size", [1_000, 10**6])
def test_behind_a_bound_a_thought_is_held_no_longer(size):
    most = reasoning.MOST_HELD
    thinker = REASONING["qwen3"](tool_starts=["<tool_call>"])
    text = "<think>So <tool_call>" + "a" * (most - len("<tool_call>") - 1)
    events = [e for at in range(0, len(text), size) for e in thinker.push(text[at : at + size])]
    assert "".join(event.text for event in events) == "So"
    assert thinker.push("b" * 99) == [ReasoningDelta(f" {text[10:]}" + "b" * 99)]
    assert thinker.push("c</think>d") == [ReasoningDelta("c"), TextDelta("d")]


@every_family
@slow
@given(data=st.data())
def test_a_call_inside_code_is_text(tools, data):
    call = written(tools, {"a": "x"})
    has_fence = tools == "xlam" or "```" in call  # in a call as the family writes it
    fences = FENCES[1::2] if has_fence else FENCES
    blocks = data.draw(st.lists(st.sampled_from(fences), min_size=1, max_size=2))
    text = "".join(f"So:\n{block.replace('{}', call)}" for block in blocks)
    is_made = data.draw(st.booleans())
    pieces = data.draw(cuts(text + call if is_made else text))
    _, answer, finish = read(None, tools, pieces)
    assert answer.text == text
    assert answer.names == ["f"] * is_made
    assert finish is (FinishReason.TOOL_CALLS if is_made else FinishReason.STOP)


@every_family
@slow
@given(data=st.data())
def test_marks_between_backticks_are_readable_and_a_lone_backtick_is_not_in_the_way(tools, data):
    call = written(tools, {"a": "x"})
    marks = [mark for mark in TOOLS[tools].control_marks() if "\n" not in mark]
    mark = data.draw(st.sampled_from([*marks, "so"]))
    ticks = data.draw(st.sampled_from(["`", "``"]))
    quoted = [f"Use {ticks}{mark}{ticks}, or", f"{ticks}so {mark} {mark} so{ticks}. "]
    if "\n\n" not in call and "`" not in call:
        quoted.append(f"{ticks}{call}{ticks}: so")
    lone = data.draw(st.sampled_from(["it`s ", "a ` b ", f"{ticks}a\n", "`a` `b`` ", ""]))
    text = " ".join(data.draw(st.permutations(quoted))) + f" {lone}"
    _, answer, finish = read(None, tools, data.draw(cuts(text + call)))
    assert (answer.text, answer.names, finish) == (text, ["f"], FinishReason.TOOL_CALLS)


@pytest.mark.parametrize("tools", sorted(set(TOOLS) - BARE - {"deepseek_v3"}))
def test_a_call_in_a_fence_that_never_ends_is_one_unless_the_answer_is_cut(tools):
    text, call = "So:\n```\na\n", written(tools, {"a": "x"})
    for pieces in ([text + call], list(text + call)):
        assert read(None, tools, pieces)[1].calls == [{"name": "f", "arguments": {"a": "x"}}]
        assert read(None, tools, pieces, ended=False)[1].text == text + call
    # what comes behind a call that was made is outside code
    after = f"```xml\n{call}\n```"
    _, answer, _ = read(None, tools, [f"it`s {call}\n{after}\n{call}"])
    assert (answer.names, after in answer.text) == (["f", "f"], True)


@every_family
def test_a_fence_without_calls_streams(tools):
    parser, text = parser_of(tools, SCHEMAS), "So:\n```py\nx = {'a': [1]}  # functools\n"
    assert "".join(event.text for event in parser.push(text)) == text


@every_family
def test_a_call_that_the_model_ends_lacks_closing_marks_at_most_or_the_answer_is_cut(tools):
    arguments = {"a": "some text", "b": "other text"}
    text = written(tools, arguments)
    finishes = set()
    for end in range(1, len(text) + 1):
        _, answer, finish = read(None, tools, [text[:end]])
        assert read(None, tools, list(text[:end]))[1:] == (answer, finish)
        finishes.add(finish)
        if finish is FinishReason.TOOL_CALLS:
            (call,) = answer.calls
            assert call["arguments"] == {key: arguments[key] for key in call["arguments"]}
        elif finish is FinishReason.STOP:
            assert answer.names == []
        if answer.names:
            assert read(None, tools, [text[:end]], ended=False)[2] is not FinishReason.STOP
    assert finishes == {FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS}
    behind = max(text.rindex("other text") + len("other text"), text.rindex("r text") + 6)
    closed = [end for end in range(behind, len(text)) if read(None, tools, [text[:end]])[1].names]
    assert closed
