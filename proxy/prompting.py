"""Messages -> prompt text, with the model's own Jinja chat template, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from proxy.domain.errors import InvalidRequest
from proxy.domain.model import ModelFacts
from proxy.domain.request import ChatPrompt, Message


def render(prompt: ChatPrompt, facts: ModelFacts) -> str:
    """The prompt up to where the assistant's answer begins.

    Raises:
        InvalidRequest: the model has no chat template, or its template refuses the messages.
    """
    if facts.chat_template is None:
        raise InvalidRequest(
            "This model has no chat template. Use /v1/completions with a prompt.",
            code="unsupported_parameter",
            param="messages",
        )
    try:
        return _compiled(facts.chat_template).render(
            messages=[
                _as_template_sees(message, facts.chat_template) for message in prompt.messages
            ],
            add_generation_prompt=True,
            bos_token=facts.bos_token,
            eos_token=facts.eos_token,
        )
    except Exception as error:  # a template is a program: it may raise anything
        raise InvalidRequest(
            f"The model's chat template refused the messages: {error}",
            code="invalid_messages",
            param="messages",
        ) from error


def _as_template_sees(message: Message, template: str) -> Mapping[str, str]:
    """A template that does not know the newer role `developer` gets it as `system`."""
    role = message.role
    if role == "developer" and "developer" not in template:
        role = "system"
    seen = {"role": role, "content": message.content}
    return seen if message.name is None else {**seen, "name": message.name}


@lru_cache(maxsize=64)
def _compiled(template: str) -> jinja2.Template:
    """The environment that Hugging Face's templates are written for."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(template)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    """Jinja's own escapes HTML, which prompts must not have."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
