"""Reasoning, then tools: calls are parsed outside reasoning only."""

from __future__ import annotations

import pytest

from proxy.domain.events import ReasoningDelta
from proxy.language.syntax.reasoning.families import FAMILIES as REASONING
from proxy.language.syntax.tools.families import FAMILIES as TOOLS
from tests.unit.language.syntax.tools.folding import Answer, parser_of
from tests.unit.language.syntax.tools.syntaxes import SYNTAXES

CALLS = [{"name": "f", "arguments": {"city": "Paris"}}, {"name": "f", "arguments": {}}]
SCHEMAS = {"f": {"properties": {"city": {"type": "string"}}}}
HARMONY = "<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant{calls}"


def chained(reasoning: str, tools: str, text: str) -> tuple[str, Answer]:
    starts = TOOLS[tools].parser_type.clear_starts()
    thinker = REASONING[reasoning].parser_type(tool_starts=starts)
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
        ("harmony", "harmony", HARMONY),
    ],
)
def test_reasoning_and_calls_are_separated(reasoning, tools, syntax):
    text = syntax.format(thought="I need f", calls=SYNTAXES[tools](CALLS))
    thought, answer = chained(reasoning, tools, text)
    assert (thought, answer.text, answer.calls) == ("I need f", "", CALLS)


@pytest.mark.parametrize(
    ("tools", "word"), [("xlam", "```json\n{}\n```"), ("phi4_mini_json", "functools.cache")]
)
def test_a_start_that_may_be_text_does_not_end_a_thought(tools, word):
    calls = SYNTAXES[tools](CALLS)
    thought, answer = chained("qwen3", tools, f"<think>\nso {word} then\n</think>\n\n{calls}")
    assert (thought, answer.text, answer.calls) == (f"so {word} then", "", CALLS)


def test_a_call_within_reasoning_is_not_made():
    text = '<think>I could write [TOOL_CALLS]f{"city": "x"}</think>No.'
    thought, answer = chained("qwen3", "hermes", text)
    assert "[TOOL_CALLS]" in thought
    assert (answer.text, answer.names) == ("No.", [])
