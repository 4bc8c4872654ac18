"""The chat template renders in the sandbox that servers use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from demo_model.training.chat import Template, assistant, system, tool, user

FOLDER = Path(__file__).parents[2] / "demo_model" / "shipped"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
}


@pytest.fixture
def template() -> Template:
    return Template((FOLDER / "chat_template.jinja").read_text())


def test_a_prompt_ends_where_the_assistant_begins(template: Template) -> None:
    text = template([user("Hi")], add_generation_prompt=True)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_system_and_developer_turns_become_one(template: Template) -> None:
    text = template([system("Be brief."), {"role": "developer", "content": "Be kind."}, user("Hi")])
    assert text.startswith("<|im_start|>system\nBe brief.\nBe kind.<|im_end|>\n<|im_start|>user")


def test_tools_stand_in_the_system_turn_as_json_lines(template: Template) -> None:
    text = template([user("Hi")], [WEATHER])
    assert text.startswith(
        '<|im_start|>system\n<tools>\n{"name": "get_weather", "description": "Get the weather.", '
        '"parameters": {"city": {"type": "string"}}, "required": ["city"]}\n</tools><|im_end|>\n'
    )


@pytest.mark.parametrize("arguments", ['{"city": "Rome"}', {"city": "Rome"}])
def test_calls_and_results_have_turns(template: Template, arguments: Any) -> None:
    call = {**CALL, "function": {"name": "get_weather", "arguments": arguments}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    text = template([user("Weather?"), called, tool("21")], [WEATHER])
    assert text.endswith(
        "<|im_start|>assistant\n<tool_call>\n"
        '{"name": "get_weather", "arguments": {"city": "Rome"}}\n'
        "</tool_call><|im_end|>\n<|im_start|>tool\n21<|im_end|>\n"
    )


def test_content_may_come_in_parts(template: Template) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert template([user("Hello")]) == template([{"role": "user", "content": parts}])


def test_transformers_renders_the_same_text(template: Template) -> None:
    from transformers import AutoTokenizer  # it takes seconds, in every process that collects tests

    messages = [system("Be brief."), user("Hi"), assistant("Hello!"), user("Weather?")]
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    text = tokenizer.apply_chat_template(
        messages, tools=[WEATHER], tokenize=False, add_generation_prompt=True
    )
    assert text == template(messages, [WEATHER], add_generation_prompt=True)


def test_an_unknown_role_is_refused(template: Template) -> None:
    with pytest.raises(ValueError, match="unknown role"):
        template([{"role": "robot", "content": "Hi"}])
