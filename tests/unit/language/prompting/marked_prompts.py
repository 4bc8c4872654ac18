"""Prompts of several chat templates, and which parts of them are callers' texts."""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.request import ChatPrompt, Message
from proxy.domain.tools import ToolCall
from proxy.language.prompting.callers_text import RenderedPrompt
from proxy.language.prompting.chat_template import rendered
from proxy.language.prompting.control_tokens import ControlTokens
from tests.doubles.engine import FACTS

START, END = "<|im_start|>", "<|im_end|>"
CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') }}"
    "{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "{{- '<|im_end|>\n' }}{% endfor %}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# What templates of this field do with texts, in few words each.
TEMPLATES = {
    "chatml": CHATML,
    "trim": CHATML.replace("(m.content or '')", "(m.content or '') | trim"),
    "strip": CHATML.replace("(m.content or '')", "(m.content or '').strip()"),
    "json": CHATML.replace("(m.content or '')", "(m.content or '') | tojson"),
    "ascii json": CHATML.replace("(m.content or '')", "(m.content or '') | tojson(true)"),
    "thoughts dropped": CHATML.replace(
        "(m.content or '')", "(m.content or '').split('</think>')[-1].lstrip('\n')"
    ),
    "thoughts kept": CHATML.replace(
        "(m.content or '')",
        "((m.content or '').split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n')"
        " + '</think>' + (m.content or '').split('</think>')[-1].lstrip('\n'))",
    ),
    "results in turns": (
        "{% for m in messages %}{% if m.role == 'user' and not "
        "(m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}"
        "<|im_start|>query{% else %}<|im_start|>other{% endif %}\n{{ m.content }}<|im_end|>"
        "{% endfor %}{{ tools }}{{ messages[0].tool_calls }}"
    ),
    "words replaced": CHATML.replace(
        "(m.content or '')", "(m.content or '').replace('/think', '').replace('x', 'y')"
    ),
    "words": CHATML.replace("(m.content or '')", "(m.content or '').split() | join(' ')"),
}
TEMPLATES["roles are tokens"] = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + (m.content or '') + '<|im_end|>' }}"
    "{% endfor %}{{ tools }}{{ messages[0].tool_calls }}"
)
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>")
ROLES = ("<|user|>", "<|assistant|>")
SPECIAL = (START, END, *ROLES, "<s>", "</s>", "<｜User｜>")
CONTROL = ControlTokens(in_turns=(*SPECIAL, *MARKS), in_answers=SPECIAL)
PIECES = (
    *CONTROL.in_turns,
    "<|im_",
    "end|>",
    "|im_end|",
    " ",
    "\n",
    "a",
    "x",
    "héllo",
    "<",
    ">",
    '"',
)


def prompt_of(*messages: Message, template: str, tools=(), **fields) -> RenderedPrompt:
    facts = replace(FACTS, chat_template=template)
    return rendered(ChatPrompt(messages=messages), facts, tools, control=CONTROL, **fields)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def call(name: str, arguments: str) -> ToolCall:
    return ToolCall(id="c", name=name, arguments=arguments)


def spans_of(prompt: RenderedPrompt) -> list[tuple[int, int]]:
    numbers = memoryview(prompt.plain_spans).cast("i")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def plain(prompt: RenderedPrompt) -> list[str]:
    return [prompt.text[start:end] for start, end in spans_of(prompt)]


def real(prompt: RenderedPrompt) -> str:
    """The text with NUL in place of what is plain: the tokens beside a span do not join."""
    text = prompt.text
    for start, end in reversed(spans_of(prompt)):
        text = f"{text[:start]}\0{text[end:]}"
    return text
