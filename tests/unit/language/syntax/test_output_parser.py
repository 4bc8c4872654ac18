"""OutputParser: reasoning, text and calls of one answer, and when it has enough calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.completion import Answer, fold
from proxy.domain.events import TextDelta
from proxy.domain.model import ModelCard
from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from proxy.domain.record import RequestRecord
from proxy.domain.request import ChatPrompt, GenerationRequest, Message, Sampling
from proxy.domain.tools import Tool, ToolChoice, ToolMode
from proxy.generation.answer_format import AnswerFormats
from proxy.generation.choice.choice import Choice
from proxy.generation.choice.choice_cost import ChoiceCost
from proxy.language.syntax.parsers import syntax_of
from tests.doubles.engine import CARD, FACTS, deltas
from tests.doubles.sandbox import InProcess
from tests.strategies import cuts

SPECIALS = {1: b"<|im_end|>", 2: b"[TOOL_CALLS]", 3: b"[THINK]", 4: b"[/THINK]"}
TOOLS = (
    Tool(name="f", parameters={"type": "object", "properties": {"x": {"type": "integer"}}}),
    Tool(name="g"),
)


def card(tools: str = "hermes", reasoning: str = "qwen3") -> ModelCard:
    facts = replace(FACTS, special_tokens=SPECIALS)
    return replace(CARD, facts=facts, tool_parser=tools, reasoning_parser=reasoning)


def chat(**fields) -> GenerationRequest:
    prompt = ChatPrompt(messages=(Message(role="user", content="hi"),))
    return GenerationRequest(
        **{"id": "r", "model": "demo", "prompt": prompt, "tools": TOOLS} | fields
    )


def answered(
    request: GenerationRequest, pieces: list[TokenDelta], of: ModelCard, prompt=""
) -> Answer:
    syntax = syntax_of(of)
    answer_format = asyncio.run(AnswerFormats(InProcess()).answer_format(request, of, syntax))
    choice = Choice(
        request,
        of,
        0,
        ChoiceCost(of, RequestRecord()),
        parser=syntax.parser(request, prompt, answer_format.tool_family),
        specials=syntax.visible_special_tokens(request),
    )
    events = []
    for piece in pieces:
        events += choice.push(piece)
        if choice.is_finished:
            break
    return fold(events).choices[0]


def call(name: str, x: int) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"x": {x}}}}}\n</tool_call>'


TWO = f"<think>\nhm\n</think>\n\nSo: {call('f', 1)}\n{call('g', 2)}"


@given(st.data())
def test_every_cut_gives_reasoning_text_and_calls(data):
    tokens = [piece.encode() for piece in data.draw(cuts(TWO))]
    pieces = [TokenDelta((token,)) for token in tokens]
    pieces.append(TokenDelta((b"",), finish=FinishReason.STOP))
    answer = answered(chat(), pieces, card())
    assert (answer.reasoning, answer.text.strip()) == ("hm", "So:")
    assert [(one.name, one.arguments) for one in answer.calls] == [
        ("f", '{"x": 1}'),
        ("g", '{"x": 2}'),
    ]
    assert answer.reason is FinishReason.TOOL_CALLS


def test_one_call_is_enough_in_one_piece():
    piece = TokenDelta((TWO.encode(), b" and more"), finish=FinishReason.LENGTH)
    answer = answered(chat(calls_in_parallel=False), [piece], card())
    assert [one.name for one in answer.calls] == ["f"]
    assert (answer.reason, answer.text.strip()) == (FinishReason.TOOL_CALLS, "So:")


def test_after_enough_calls_nothing_more_comes_out():
    request = chat(calls_in_parallel=False)
    text = '<|channel|>commentary to=functions.f<|message|>{"x": 1}<|call|><|start'
    for pieces in ([text], [text[:-7], text[-7:]]):
        parser = syntax_of(card("harmony", "harmony")).parser(request, "", "harmony")
        events = [event for piece in pieces for event in parser.push(piece)] + parser.flush()
        assert not [event for event in events if isinstance(event, TextDelta)]


def test_a_broken_call_is_enough_as_well():
    text = '<tool_call>{"name": "f", "arguments": {"x": 1!}}</tool_call>'
    for pieces in (deltas(text), [TokenDelta((text.encode(),), finish=FinishReason.STOP)]):
        answer = answered(chat(calls_in_parallel=False), pieces, card())
        assert [one.arguments for one in answer.calls] == ['{"x": 1}']
        assert answer.text == ""


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (ToolChoice(), FinishReason.TOOL_CALLS),
        (ToolChoice(mode=ToolMode.REQUIRED), FinishReason.TOOL_CALLS),
        (ToolChoice(mode=ToolMode.AUTO, allowed=("f",)), FinishReason.TOOL_CALLS),
        (ToolChoice(mode=ToolMode.REQUIRED, allowed=("f",), is_named=True), FinishReason.STOP),
    ],
)
def test_the_finish_reason_depends_on_the_tool_choice(choice, reason):
    answer = answered(chat(tool_choice=choice), deltas(call("f", 1)), card())
    assert (answer.reason, len(answer.calls)) == (reason, 1)


@pytest.mark.parametrize(
    ("finish", "stop", "arguments", "reason"),
    [
        (FinishReason.STOP, (), "{}", FinishReason.TOOL_CALLS),
        (FinishReason.LENGTH, (), "", FinishReason.LENGTH),
        (FinishReason.STOP, ("!",), "", FinishReason.STOP),
    ],
)
def test_a_harmony_call_may_end_with_the_answer_where_its_arguments_would_begin(
    finish, stop, arguments, reason
):
    pieces = [
        TokenDelta((b"<|channel|>commentary to=functions.g<|message|>", b"!" if stop else b"")),
        TokenDelta((b"",), finish=finish),
    ]
    answer = answered(chat(stop=stop), pieces, card("harmony", "harmony"))
    assert [(one.name, one.arguments) for one in answer.calls] == [("g", arguments)]
    assert answer.reason is reason


def test_a_tool_that_is_not_allowed_is_not_called():
    request = chat(tool_choice=ToolChoice(allowed=("g",)))
    answer = answered(request, deltas(call("f", 1)), card())
    said = call("f", 1).removeprefix("<tool_call>").removesuffix("</tool_call>")
    assert (answer.calls, answer.text, answer.reason) == ((), said, FinishReason.STOP)


def test_a_call_that_a_stop_string_cuts_off_does_not_count_as_complete():
    answer = answered(chat(stop=('"x"',)), deltas(call("f", 1)), card())
    assert answer.reason is FinishReason.STOP


def test_special_tokens_of_the_syntax_are_seen_by_the_parser_only():
    of = card("mistral", "mistral")
    tokens = [(3, b""), (9, b"hm"), (4, b""), (2, b""), (8, b'f[ARGS]{"x": 1}'), (1, b"")]
    piece = TokenDelta(
        tuple(text for _, text in tokens),
        token_ids=tuple(token for token, _ in tokens),
        finish=FinishReason.STOP,
    )
    answer = answered(chat(), [piece], of)
    assert (answer.reasoning, answer.text) == ("hm", "")
    assert [one.arguments for one in answer.calls] == ['{"x": 1}']


def test_special_tokens_are_text_if_the_request_wants_them():
    request = chat(tools=(), skips_special_tokens=False)
    piece = TokenDelta((b"", b"a", b""), token_ids=(2, 9, 1), finish=FinishReason.STOP)
    assert answered(request, [piece], card(reasoning="none")).text == "[TOOL_CALLS]a"
    request = replace(request, includes_stop=True)
    assert answered(request, [piece], card(reasoning="none")).text == "[TOOL_CALLS]a<|im_end|>"


def test_reasoning_that_the_prompt_has_opened():
    answer = answered(chat(), deltas("hm</think>yes"), card(), prompt="<|im_start|>a\n<think>\n")
    assert (answer.reasoning, answer.text) == ("hm", "yes")


def test_reasoning_that_a_message_which_is_continued_has_begun():
    begun = Message(role="assistant", content="<think>\nOkay, the user")
    request = chat(prompt=ChatPrompt(messages=(begun,), continues_last=True))
    prompt = f"<|im_start|>a\n{begun.content}"
    answer = answered(request, deltas(" wants x</think>yes"), card(), prompt=prompt)
    assert (answer.reasoning, answer.text) == (" wants x", "yes")


def test_reasoning_tokens_are_counted():
    request, of = chat(tools=()), card()
    choice = Choice(
        request,
        of,
        0,
        ChoiceCost(of, RequestRecord()),
        parser=syntax_of(of).parser(request, "", None),
    )
    events = []
    for text in (b"<think>", b"a", b"b", b"</think>", b"yes"):
        events += choice.push(TokenDelta((text,)))
    events += choice.push(TokenDelta((b"",), finish=FinishReason.STOP))
    usage = events[-1].usage
    assert (usage.reasoning_tokens, usage.completion_tokens) == (4, 6)


def test_families_are_found_from_the_template():
    facts = replace(FACTS, chat_template="{{ tools }}<tool_call> <think>")
    found = syntax_of(replace(CARD, facts=facts))
    assert (found.tools, found.reasoning) == ("hermes", "qwen3")
    assert syntax_of(CARD).tools == "generic"
    for template in (None, "{{ tools }}"):
        facts = replace(FACTS, chat_template=template)
        assert syntax_of(replace(CARD, facts=facts)).tools is None
    assert syntax_of(replace(CARD, tool_parser="none")).tools is None
    with_two = replace(FACTS, chat_template="<think>", tool_template="{{ tools }}<tool_call>")
    found = syntax_of(replace(CARD, facts=with_two))
    assert (found.tools, found.reasoning) == ("hermes", "qwen3")
    for template in ("<tool_call>{{ m.tool_calls }}", "{{ xml_tools }}", "{% if 'tools' in m %}"):
        shows_none = replace(FACTS, chat_template=template)
        assert syntax_of(replace(CARD, facts=shows_none)).tools == "generic"
    named = syntax_of(replace(CARD, facts=facts, tool_parser="none", reasoning_parser="harmony"))
    assert (named.tools, named.reasoning) == (None, "harmony")


THINKING = "<think>First a STOP here.</think>\n\nFinal STOP answer"


@given(
    data=st.data(),
    stop=st.sampled_from(["STOP", "\n\n", "k>\n\nF", "think", "<", "here.", "First", "er", "l ST"]),
    includes=st.booleans(),
    tools=st.sampled_from([(), TOOLS]),
)
def test_a_stop_string_ends_the_answer_and_not_the_thought(data, stop, includes, tools):
    request = chat(stop=(stop,), includes_stop=includes, tools=tools)
    text = "Final STOP answer"
    at = text.find(stop)
    end = len(text) if at < 0 else at + len(stop) * includes
    for pieces in (data.draw(cuts(THINKING)), [THINKING], list(THINKING)):
        deltas = [TokenDelta((piece.encode(),)) for piece in pieces if piece]
        answer = answered(
            request, [*deltas, TokenDelta((b"",), finish=FinishReason.LENGTH)], card()
        )
        assert (answer.reasoning, answer.text) == ("First a STOP here.", text[:end])
        assert answer.reason is (FinishReason.LENGTH if at < 0 else FinishReason.STOP)


@given(data=st.data(), stop=st.sampled_from(["STOP", "swer", "l STOP a", "zzz"]))
def test_log_probabilities_end_with_the_text_that_a_stop_string_leaves(data, stop):
    request = chat(stop=(stop,), sampling=Sampling(top_log_probs=1))
    pieces = [piece for piece in data.draw(cuts(THINKING)) if piece]
    tokens = tuple(piece.encode() for piece in pieces)
    log_probs = tuple(TokenLogProb(-1.0, (Alternative(one, -1.0),)) for one in tokens)
    delta = TokenDelta(tokens, log_probs=log_probs, finish=FinishReason.LENGTH)
    answer = answered(request, [delta], card())
    logged = b"".join(one.token_bytes for one in answer.log_probs).decode()
    end = THINKING.rfind(stop) if stop in THINKING else len(THINKING)
    assert len(logged) >= end
    assert THINKING.startswith(logged)
    assert len("".join(pieces[: len(answer.log_probs) - 1])) < end


def test_stop_strings_are_looked_for_in_the_answer_only_behind_the_least_tokens():
    tokens = [b"<think>", b"a STOP", b"</think>", b"b STOP", b" c", b" STOP", b" d"]
    request = chat(stop=("STOP",), sampling=Sampling(min_tokens=4))
    pieces = [TokenDelta((one,)) for one in tokens]
    answer = answered(request, pieces, card())
    assert (answer.reasoning, answer.text) == ("a STOP", "b STOP c ")


@pytest.mark.parametrize("tail", ["", "</think>STOP"])
def test_a_stop_string_never_ends_a_thought_that_does_not_end(tail):
    pieces = [
        *deltas("<think>a STOP b" + tail)[:-1],
        TokenDelta((b"",), finish=FinishReason.LENGTH),
    ]
    answer = answered(chat(stop=("STOP",)), pieces, card())
    assert (answer.reasoning, answer.text) == ("a STOP b", "")
    assert answer.reason is (FinishReason.STOP if tail else FinishReason.LENGTH)
