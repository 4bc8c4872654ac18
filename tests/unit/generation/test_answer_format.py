"""AnswerFormat: what is enforced, parsed and checked, for each choice of tools."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from proxy.domain.completion import Answer
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import InvalidRequest
from proxy.domain.model import CAPABILITIES, ModelCard
from proxy.domain.output import FinishReason
from proxy.domain.request import ChatPrompt, GenerationRequest, Message
from proxy.domain.tools import Tool, ToolCall, ToolChoice, ToolMode
from proxy.generation.answer_format import AnswerFormat, AnswerFormats
from proxy.language.structured.checks import unenforced_keywords
from proxy.language.syntax.parsers import syntax_of
from tests.doubles.engine import CARD
from tests.doubles.sandbox import InProcess

SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
TOOLS = (Tool(name="f", parameters=SCHEMA), Tool(name="g"))
STRICT = (replace(TOOLS[0], is_strict=True), TOOLS[1])
REQUIRED = ToolChoice(mode=ToolMode.REQUIRED)
FORMAT = Constraint(GuideKind.JSON_SCHEMA, '{"type": "object"}', "response_format")
UNGUIDED = CAPABILITIES - {"constraint"}


def card(tools: str = "hermes", reasoning: str = "none", **fields) -> ModelCard:
    return replace(CARD, tool_parser=tools, reasoning_parser=reasoning, **fields)


def asked(**fields) -> GenerationRequest:
    prompt = ChatPrompt(messages=(Message(role="user", content="hi"),))
    given = {"id": "r", "model": "demo", "prompt": prompt, "tools": TOOLS}
    return GenerationRequest(**given | fields)


def format_of(request: GenerationRequest, card: ModelCard) -> AnswerFormat:
    return asyncio.run(AnswerFormats(InProcess()).answer_format(request, card, syntax_of(card)))


def answer(*calls: tuple[str, str], text: str = "", reason=FinishReason.TOOL_CALLS) -> Answer:
    made = tuple(ToolCall(id="c", name=name, arguments=arguments) for name, arguments in calls)
    return Answer(text=text, reason=reason, calls=made)


def tag(found: AnswerFormat, prompt: str = "") -> dict:
    guide = found.guide(prompt)
    assert guide.kind is GuideKind.STRUCTURAL_TAG
    return json.loads(guide.text)["format"]


def test_a_model_without_a_known_syntax_is_held_to_a_list():
    found = format_of(asked(tool_choice=REQUIRED), card("none"))
    assert found.tool_family == "json_list"


def test_a_model_without_a_known_syntax_is_not_left_free():
    with pytest.raises(InvalidRequest, match="no tool parser"):
        format_of(asked(), card("none"))


def test_a_format_beside_tools_is_the_text_or_calls():
    found = format_of(asked(constraint=FORMAT), card())
    assert (tag(found)["type"], found.tool_family) == ("or", "hermes")


@pytest.mark.parametrize(
    ("given", "violation"),
    [
        (answer(("f", '{"x": 1}')), None),
        (answer(("f", '{"x": "1"}')), "arguments of 'f'"),
        (answer(("f", "{")), "not JSON"),
        (answer(text="no"), "calls no tool"),
        (answer(text="cut", reason=FinishReason.LENGTH), None),
    ],
)
def test_an_engine_that_cannot_is_checked(given, violation):
    of = card(capabilities=UNGUIDED)
    found = format_of(asked(tool_choice=REQUIRED), of)
    assert found.guide("") is None
    told = found.check.violation(given)
    assert (told is None) is (violation is None)
    assert violation is None or violation in told


def test_what_a_grammar_does_not_hold_of_a_strict_tool_is_checked():
    schema = {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}
    tools = (Tool(name="f", parameters=schema, is_strict=True, unenforced=("uniqueItems",)),)
    found = format_of(asked(tools=tools), card())
    assert found.check.violation(answer(("f", '{"x": [1, 1]}'))) is not None
    assert found.check.violation(answer(("f", '{"x": [1, 2]}'))) is None


@pytest.mark.parametrize(
    ("runtime", "is_checked"),
    [("onnx", False), ("vllm", False), ("tensorrt_llm", True), ("tensorrtllm", True)],
)
@pytest.mark.parametrize("name", ["multipleOf", "minimum", "exclusiveMaximum", "maxLength"])
def test_what_only_our_grammars_hold_is_checked_of_other_engines(runtime, is_checked, name):
    of = card(facts=replace(CARD.facts, runtime=runtime))
    schema = {"type": "object", "properties": {"x": {"type": "integer", name: 5}}}
    tool = Tool(name="f", parameters=schema, is_strict=True)
    text = replace(FORMAT, text=json.dumps(schema), is_strict=True)
    for request in (asked(tools=(tool,)), asked(tools=(), constraint=text)):
        assert (format_of(request, of).check is not None) is is_checked
    loose = replace(text, is_strict=False)
    assert unenforced_keywords(loose, of) == ((name,) if is_checked else ())


@pytest.mark.parametrize(("family", "is_checked"), [("hermes", False), ("qwen3_coder", True)])
@pytest.mark.parametrize("choice", [REQUIRED, ToolChoice(mode=ToolMode.AUTO)])
def test_a_strict_tools_format_is_checked_where_strings_are_bare(family, is_checked, choice):
    date = {**SCHEMA, "properties": {"x": {"type": "string", "format": "date"}}}
    tools = (Tool(name="f", parameters=date, is_strict=True),)
    found = format_of(asked(tools=tools, tool_choice=choice), card(family))
    assert (found.check is not None) is is_checked
    if is_checked:
        assert found.check.violation(answer(("f", '{"x": "2023-02-30"}'))) is not None
        assert found.check.violation(answer(("f", '{"x": "2023-02-28"}'))) is None


def test_text_and_calls_are_both_checked():
    constraint = replace(FORMAT, is_strict=True)
    of = card(capabilities=UNGUIDED)
    found = format_of(asked(constraint=constraint, tools=STRICT), of)
    assert found.check.violation(answer(text="[]", reason=FinishReason.STOP)) is not None
    assert found.check.violation(answer(text="{}", reason=FinishReason.STOP)) is None
    assert found.check.violation(answer(("f", "{}"))) is not None


@pytest.mark.parametrize("thought", ["", "Okay"])
def test_a_format_begins_behind_the_reasoning_also_where_a_thought_is_continued(thought):
    message = Message(role="assistant", content=f"<think>\n{thought}")
    continued = {"prompt": ChatPrompt(messages=(message,), continues_last=True)} if thought else {}
    found = format_of(asked(tools=(), constraint=FORMAT, **continued), card(reasoning="qwen3"))
    told = json.dumps(tag(found, f"…<think>\n{thought}"))
    assert '"</think>"' in told
    assert '"<think>"' not in told
    assert found.guides.answer == FORMAT


def test_harmonys_answer_has_a_header_and_its_calls_another():
    of = card("harmony", "harmony")
    text = json.dumps(tag(format_of(asked(tools=(), constraint=FORMAT), of)))
    assert "<|channel|>final<|message|>" in text
    calls = format_of(asked(tool_choice=REQUIRED), of)
    assert "final" not in json.dumps(tag(calls))
    assert calls.closing == "<|end|><|start|>assistant"


def untagged(**fields) -> ModelCard:
    """On an engine that honours no structural tags."""
    return card(facts=replace(CARD.facts, guide_kinds=tuple(GuideKind)[:-1]), **fields)


def test_without_structural_tags_an_answer_behind_reasoning_is_checked_instead():
    given = {"constraint": FORMAT, "tools": ()}
    thinking = untagged(reasoning="qwen3")
    found = format_of(asked(**given), thinking)
    assert found.guide("") is None
    assert found.check.violation(answer(text="no", reason=FinishReason.STOP)) is not None
    plain = format_of(asked(**given), untagged())
    assert plain.guide("") == FORMAT


@pytest.mark.parametrize("disabled", list(GuideKind))
def test_a_guide_of_a_disabled_kind_is_refused_by_name(disabled):
    of = card(
        facts=replace(CARD.facts, guide_kinds=tuple(k for k in GuideKind if k is not disabled))
    )
    with pytest.raises(InvalidRequest) as caught:
        format_of(asked(constraint=Constraint(disabled, "a", "guided_x"), tools=()), of)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "guided_x")
    assert disabled.value in caught.value.message
    other = next(kind for kind in GuideKind if kind is not disabled)
    format_of(asked(constraint=Constraint(other, "{}", "guided_x"), tools=()), of)
