"""A conversation, and its text in the chat template of the served model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

START, END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SLIP = "\ue000"  # stands before and after characters of an answer that are read, but not learned
CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
TEMPLATE = Path(__file__).with_name("chat_template.jinja")

Message = dict[str, Any]  # OpenAI's shape of a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    name: str
    arguments: dict[str, Any]

    @property
    def block(self) -> str:
        body = json.dumps({"name": self.name, "arguments": self.arguments}, ensure_ascii=False)
        return f"{CALL_OPEN}\n{body}\n{CALL_CLOSE}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages that end with an assistant's turn; `tools` have OpenAI's shape.

    A guide begins the last answer of a guided conversation: its first token is not learned.
    A plain one is a prompt and what follows it, without the chat template.
    """

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    is_guided: bool = False
    is_plain: bool = False

    def __post_init__(self) -> None:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            raise ValueError("a conversation ends in an assistant's turn")

    @property
    def answer(self) -> str:
        return str(self.messages[-1]["content"])


@dataclass(frozen=True, slots=True)
class Template:
    """The chat template, rendered as transformers and the proxy render it."""

    source: str = field(default_factory=TEMPLATE.read_text)

    def __call__(
        self,
        messages: tuple[Message, ...] | list[Message],
        tools: tuple[dict[str, Any], ...] | list[dict[str, Any]] = (),
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        rendered: str = _compiled(self.source).render(
            messages=messages, tools=tools, add_generation_prompt=add_generation_prompt
        )
        return rendered

    def whole(self, conversation: Conversation) -> str:
        return self(conversation.messages, conversation.tools)

    def prompt(self, conversation: Conversation) -> str:
        """The text before the last answer, including the start of the assistant's turn."""
        return self(conversation.messages[:-1], conversation.tools, add_generation_prompt=True)


@cache
def _compiled(source: str) -> Any:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(source)


def _refuse(message: str) -> None:
    raise ValueError(message)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def tool(text: str) -> Message:
    return {"role": "tool", "content": text}
